use tempfile::TempDir;

use super::*;
use sekisho_config::{Environment, Provider};
use sekisho_core::administration::{Administrator, Ownership, SharedAdministrator};
use sekisho_core::error::ErrorCode;

const BY: &SharedAdministrator = &SharedAdministrator::of_tests();
const BY_ROOT: &Administrator = &Administrator::of_tests(Ownership::Shared);

fn by(tenant: &str) -> Administrator {
    Administrator::of_tests(Ownership::Tenant(tenant.into()))
}

fn tenant(id: &str) -> Tenant {
    Tenant { id: id.into(), settings: TenantConfig::default() }
}

/// A gateway with this configuration, and its catalog.
async fn catalog(yaml: &str) -> (Catalog, TempDir) {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("sekisho.yaml");
    std::fs::write(&file, yaml).unwrap();
    let mut config = Config::load(Some(&file), &Environment::default()).unwrap_or_else(|errors| panic!("{errors:?}"));
    config.state_directory = Some(directory.path().join("state"));
    let gateway = Gateway::start(config).await.unwrap();
    (Catalog::load(&gateway).unwrap(), directory)
}

const YAML: &str = "
tenants:
  acme: {models: [haiku, anthropic], skills: [], max_cost_per_day: 5}
  closed: {status: inactive}
agent:
  models:
    haiku: {profile: anthropic, model: claude-haiku-4-5, price_per_million_prompt_tokens: 1}
    retired: {profile: openai, status: inactive}
";

#[tokio::test]
async fn a_model_is_a_name_that_the_tenant_has() {
    let (catalog, _directory) = catalog(YAML).await;
    let model = async |tenant: &str, name: Option<&str>| {
        let resolved = catalog.model(tenant, name).await;
        resolved.map(|resolved| (resolved.name.to_string(), resolved.profile.model().to_owned()))
    };
    let named = |name: &str, model: &str| Ok((name.to_owned(), model.to_owned()));
    assert_eq!(model("acme", Some("haiku")).await.map_err(drop), named("haiku", "claude-haiku-4-5"));
    assert_eq!(model("acme", None).await.map_err(drop), named("anthropic", "claude-sonnet-4-5"));
    assert_eq!(model("nobody-knows", Some("openai")).await.map_err(drop), named("openai", "gpt-4o-mini"));
    for (tenant, name, problem) in [
        ("acme", "openai", "there is no model \"openai\""),
        ("acme", "opus", "there is no model"),
        ("closed", "openai", "the tenant \"closed\" is inactive"),
        ("other", "retired", "the model \"retired\" is inactive"),
    ] {
        let error = model(tenant, Some(name)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.message().contains(problem), "{error}");
    }
    let error = model("acme", Some("opus")).await.unwrap_err();
    assert_eq!(error.alternatives(), ["anthropic", "haiku"]);
}

#[tokio::test]
async fn what_is_stored_is_used_and_what_the_file_defines_stays() {
    let (catalog, directory) = catalog(YAML).await;
    let fast = ModelConfig { profile: Some("openai".into()), model: Some("gpt-5-nano".into()), ..Default::default() };
    catalog.add(BY_ROOT, "fast", &fast).await.unwrap();
    let resolved = catalog.model("other", Some("fast")).await.unwrap();
    assert_eq!((resolved.profile.model(), resolved.profile.provider()), ("gpt-5-nano", Provider::Openai));
    let inactive = TenantConfig { status: ResourceStatus::Inactive, ..TenantConfig::default() };
    catalog.add(BY, "other", &inactive).await.unwrap();
    assert!(catalog.model("other", Some("fast")).await.unwrap_err().message().contains("inactive"));
    catalog.change(BY, "other", &TenantConfig::default()).await.unwrap();
    assert!(catalog.model("other", Some("fast")).await.is_ok());
    catalog.remove::<TenantConfig>(BY, "other").await.unwrap();
    assert_eq!(catalog.remove::<TenantConfig>(BY, "other").await.unwrap_err().code(), ErrorCode::NotFound);
    let file = directory.path().join("sekisho.yaml").display().to_string();
    for refused in [
        catalog.add(BY, "acme", &inactive).await,
        catalog.change(BY, "acme", &inactive).await,
        catalog.remove::<TenantConfig>(BY, "acme").await,
        catalog.change(BY_ROOT, "haiku", &fast).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
        assert!(error.message().contains(&file), "{error}");
    }
    let unknown = ModelConfig { profile: Some("nobody".into()), ..ModelConfig::default() };
    let problem = catalog.add(BY_ROOT, "slow", &unknown).await.unwrap_err();
    assert!(problem.message().contains("there is no profile \"nobody\""), "{problem}");
    assert!(catalog.add(BY_ROOT, "openai", &fast).await.unwrap_err().message().contains("is the name of a profile"));
}

#[tokio::test]
async fn skills_are_those_of_the_tenant() {
    let (catalog, _directory) = catalog(YAML).await;
    let skill = Skill { description: "Reads PDFs.".into(), instructions: "Read.".into(), files: BTreeMap::new() };
    catalog.add(BY_ROOT, "pdf", &skill).await.unwrap();
    let names = ["pdf".to_owned(), "pdf".to_owned()];
    let found = catalog.skills(&tenant("other"), &names).await.unwrap();
    assert_eq!(found, [("pdf".to_owned(), skill)]);
    let acme = catalog.active_tenant("acme").await.unwrap();
    let error = catalog.skills(&acme, &names).await.unwrap_err();
    assert!(error.message().contains("there is no skill \"pdf\"") && error.alternatives().is_empty(), "{error}");
}

#[tokio::test]
async fn what_a_tenant_stores_is_used_listed_and_changed_by_it_alone() {
    let (catalog, _directory) = catalog("agent: {models: {haiku: {profile: anthropic}}}").await;
    let model = |id: &str| ModelConfig { profile: Some("openai".into()), model: Some(id.into()), ..Default::default() };
    let skill = Skill { description: "Reads PDFs.".into(), instructions: "Read.".into(), files: BTreeMap::new() };
    catalog.add(&by("acme"), "fast", &model("gpt-5-nano")).await.unwrap();
    catalog.add(&by("acme"), "pdf", &skill).await.unwrap();
    assert_eq!(catalog.model("acme", Some("fast")).await.unwrap().profile.model(), "gpt-5-nano");
    assert_eq!(catalog.skills(&tenant("acme"), &["pdf".into()]).await.unwrap().len(), 1);
    assert!(catalog.skills_of(&tenant("acme")).await.unwrap().contains_key("pdf"));
    assert!(catalog.models(&tenant("acme")).await.unwrap().contains(&"fast".to_owned()));
    for other in ["globex", "default"] {
        let error = catalog.model(other, Some("fast")).await.unwrap_err();
        assert!(error.message().contains("there is no model"), "{other}: {error}");
        assert!(!error.alternatives().contains(&"fast".to_owned()), "{other}: {error}");
        assert!(catalog.skills(&tenant(other), &["pdf".into()]).await.is_err(), "{other}");
        assert!(catalog.skills_of(&tenant(other)).await.unwrap().is_empty(), "{other}");
        assert!(!catalog.models(&tenant(other)).await.unwrap().contains(&"fast".to_owned()), "{other}");
    }
    for by in [&by("globex"), BY_ROOT] {
        let taken = catalog.add(by, "fast", &model("other")).await.unwrap_err();
        assert_eq!(taken.code(), ErrorCode::NameTaken);
        assert!(!taken.message().contains("acme"), "{taken}");
        assert_eq!(catalog.change(by, "fast", &model("other")).await.unwrap_err().code(), ErrorCode::NotFound);
        assert_eq!(catalog.remove::<ModelConfig>(by, "fast").await.unwrap_err().code(), ErrorCode::NotFound);
    }
    let twice = catalog.add(&by("acme"), "fast", &model("other")).await.unwrap_err();
    assert_eq!(twice.code(), ErrorCode::InvalidRequest);
    let configured = catalog.add(&by("acme"), "haiku", &model("other")).await.unwrap_err();
    assert_eq!(configured.code(), ErrorCode::NameTaken);
    let listed = catalog.list::<ModelConfig>(Viewer::OfAllTenants, None, 10, |_, _| true).await.unwrap().items;
    let owners: Vec<_> = listed.iter().map(|shown| (&*shown.name, shown.tenant.as_deref())).collect();
    assert_eq!(owners, [("fast", Some("acme")), ("haiku", None)]);
    catalog.change(&by("acme"), "fast", &model("gpt-5")).await.unwrap();
    catalog.remove::<ModelConfig>(&by("acme"), "fast").await.unwrap();
    assert!(catalog.model("acme", Some("fast")).await.is_err());
}

#[tokio::test]
async fn a_model_of_a_tenant_has_no_prices_and_only_profiles_of_the_tenant() {
    let (catalog, _directory) = catalog("tenants: {acme: {models: [openai, fast, slow]}}").await;
    let of = |profile: &str| ModelConfig { profile: Some(profile.into()), ..ModelConfig::default() };
    let free = ModelConfig { price_per_million_prompt_tokens: Some(0.into()), ..of("openai") };
    let error = catalog.add(&by("acme"), "fast", &free).await.unwrap_err();
    assert!(error.message().contains("no prices of its own"), "{error}");
    let error = catalog.add(&by("acme"), "fast", &of("anthropic")).await.unwrap_err();
    assert!(error.message().contains("there is no profile \"anthropic\" for this tenant"), "{error}");
    catalog.add(&by("acme"), "fast", &of("openai")).await.unwrap();
    assert!(catalog.model("acme", Some("fast")).await.is_ok());
    catalog.add(&by("acme"), "other", &of("openai")).await.unwrap();
    assert!(catalog.model("acme", Some("other")).await.is_err(), "the list of the tenant does not have it");
    // Shared ones may have both.
    catalog.add(BY_ROOT, "slow", &ModelConfig { profile: Some("anthropic".into()), ..free }).await.unwrap();
    assert!(catalog.model("acme", Some("slow")).await.is_ok());
}

#[tokio::test]
async fn lists_are_read_page_by_page_over_file_and_store() {
    let (catalog, _directory) = catalog(YAML).await;
    for name in ["a", "z", "b"] {
        catalog.add(BY, name, &TenantConfig::default()).await.unwrap();
    }
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = catalog
            .list::<TenantConfig>(Viewer::OfAllTenants, after.as_deref(), 2, |name, _| name != "b")
            .await
            .unwrap();
        assert!(page.items.len() <= 2);
        names.extend(page.items.into_iter().map(|item| (item.name, item.configured)));
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    let expected = [("a", false), ("acme", true), ("closed", true), ("z", false)];
    assert_eq!(names, expected.map(|(name, configured)| (name.to_owned(), configured)));
}

#[tokio::test]
async fn a_budget_of_a_tenant_is_applied_when_it_is_stored() {
    let (catalog, _directory) = catalog(YAML).await;
    let budgets = &catalog.gateway.pipeline.budget;
    assert!(budgets.daily_cost_limit("acme").is_some() && budgets.daily_cost_limit("new").is_none());
    let limited = TenantConfig { max_cost_per_day: Some(rust_decimal::Decimal::ONE), ..TenantConfig::default() };
    catalog.add(BY, "new", &limited).await.unwrap();
    assert!(budgets.daily_cost_limit("acme").is_some() && budgets.daily_cost_limit("new").is_some());
    catalog.remove::<TenantConfig>(BY, "new").await.unwrap();
    assert!(budgets.daily_cost_limit("new").is_none());
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let config = AgentConfig { skills_directory: Some(Path::new("/nowhere/skills").into()), ..AgentConfig::default() };
    assert!(read_folders(&config).unwrap_err().to_string().contains("/nowhere/skills"));
    let mut config = AgentConfig::default();
    config.profiles.entry("openai".into()).or_default().subagents = vec!["*".into(), "nobody".into()];
    let problem = read_folders(&config).unwrap_err().to_string();
    assert_eq!(problem, "agent.profiles.openai.subagents: there is no type of sub-agents \"nobody\"");
}
