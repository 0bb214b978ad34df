use std::sync::atomic::Ordering;

use jiff::SignedDuration;

use super::*;

fn machine() -> Arc<DatabaseClock> {
    Arc::new(DatabaseClock::of_this_machine())
}

/// A stored key, and its token.
fn stored(id: &str) -> (StoredKey, Secret) {
    let (token, sha256) = new_token(id);
    let key = StoredKey {
        id: id.into(),
        tenant: "acme".into(),
        person: "ann".into(),
        description: String::new(),
        roles: vec!["operator".into()],
        tools: Some(vec!["crm__*".into()]),
        sha256,
        previous: None,
        created: Timestamp::now(),
        created_by: "default/admin".into(),
        creators: vec!["admin".into()],
        expires: None,
        revoked: None,
        last_used: None,
    };
    (key, token)
}

fn sign_in(keys: &ManagedKeys, token: &Secret) -> Result<Arc<Caller>, CallError> {
    let read = ManagedToken::read(token.expose()).expect("a token of a managed key");
    keys.recognize(read.id, &Sha256::digest(token.expose()).into())
}

fn refusal(keys: &ManagedKeys, token: &Secret) -> String {
    let error = sign_in(keys, token).expect_err("a refusal");
    assert_eq!(error.code(), ErrorCode::Unauthenticated);
    error.message().to_owned()
}

#[test]
fn a_token_names_its_key_and_is_random() {
    let id = new_key_id();
    let (token, sha256) = new_token(&id);
    assert_eq!(ManagedToken::read(token.expose()).map(|token| token.id), Some(&*id));
    assert_eq!(sha256.expose(), hex::encode(Sha256::digest(token.expose())));
    assert_ne!(new_token(&id).0, token);
    let secret = "0".repeat(64);
    for other in [
        "sk_",
        "sk-0123456789abcdef",
        &secret,
        &format!("sk_0123456789abcdef_{}", &secret[1..]),
        &format!("sk_0123456789abcde_{secret}"),
        &format!("sk_0123456789abcdeg_{secret}"),
        &format!("sk_0123456789abcdef{secret}"),
        &format!("SK_0123456789abcdef_{secret}"),
        &format!("sk_0123456789abcdef_{secret}0"),
    ] {
        assert!(ManagedToken::read(other).is_none(), "{other}");
    }
}

#[test]
fn a_key_gives_its_person_its_roles_and_its_tools() {
    let id = new_key_id();
    let (key, token) = stored(&id);
    let keys = ManagedKeys::new(&[key], false, &machine());
    let caller = sign_in(&keys, &token).unwrap();
    assert_eq!((&*caller.id, &*caller.tenant, &*caller.roles), ("ann", "acme", &["operator".to_owned()][..]));
    assert_eq!(caller.key_id.as_deref(), Some(&*id));
    assert!(caller.tools.admits("crm__find") && !caller.tools.admits("calculator"));
    assert!(Arc::ptr_eq(&caller, &sign_in(&keys, &token).unwrap()), "it is made once");
}

#[test]
fn a_wrong_token_of_a_key_says_nothing_about_the_key() {
    let id = new_key_id();
    let (mut key, _) = stored(&id);
    key.revoked = Some(Timestamp::now());
    let keys = ManagedKeys::new(&[key], false, &machine());
    for token in [new_token(&id).0, new_token(&new_key_id()).0] {
        assert!(refusal(&keys, &token).contains("unknown API key"));
    }
}

#[test]
fn ended_keys_and_tokens_are_refused_with_the_reason() {
    let ago = Timestamp::now() - SignedDuration::from_secs(1);
    let later = Timestamp::now() + SignedDuration::from_secs(60);
    let (key, token) = stored(&new_key_id());
    let keys = ManagedKeys::new(&[StoredKey { expires: Some(later), ..key.clone() }], false, &machine());
    assert!(sign_in(&keys, &token).is_ok());
    assert!(keys.is_active(&key.id) && !keys.is_active(&new_key_id()));
    keys.put(&StoredKey { expires: Some(ago), ..key.clone() });
    assert!(refusal(&keys, &token).contains("has expired") && !keys.is_active(&key.id));
    keys.put(&StoredKey { revoked: Some(ago), ..key.clone() });
    assert!(!keys.is_active(&key.id));
    keys.put(&StoredKey { revoked: Some(ago), expires: Some(ago), ..key.clone() });
    assert!(refusal(&keys, &token).contains("was revoked"));

    let (next, sha256) = new_token(&key.id);
    let rotated =
        |until| StoredKey { previous: Some((key.sha256.clone(), until)), sha256: sha256.clone(), ..key.clone() };
    keys.put(&rotated(later));
    assert!(sign_in(&keys, &token).is_ok() && sign_in(&keys, &next).is_ok());
    keys.put(&rotated(ago));
    assert!(refusal(&keys, &token).contains("was rotated"));
    assert!(sign_in(&keys, &next).is_ok());
}

#[test]
fn a_copy_that_is_not_confirmed_for_too_long_accepts_no_key() {
    let (key, token) = stored(&new_key_id());
    let shared = ManagedKeys::new(std::slice::from_ref(&key), true, &machine());
    assert!(sign_in(&shared, &token).is_ok());
    let age = |age: Duration| {
        let at = millis(boot_clock::now()).saturating_sub(millis(age));
        shared.confirmed.as_ref().expect("it is shared").store(at, Ordering::Release);
    };
    age(MAX_AGE - Duration::from_secs(10));
    assert!(sign_in(&shared, &token).is_ok());
    age(MAX_AGE + Duration::from_secs(10));
    let error = sign_in(&shared, &token).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded);
    assert!(!shared.is_active(&key.id));
    shared.confirm(boot_clock::now());
    assert!(sign_in(&shared, &token).is_ok());
    // An answer that was asked for earlier and arrived later makes it no older.
    shared.confirm(Duration::ZERO);
    assert!(sign_in(&shared, &token).is_ok());
}

#[test]
fn uses_are_handed_over_until_they_are_stored_also_after_keys_were_read_again() {
    let (key, token) = stored(&new_key_id());
    let keys = ManagedKeys::new(std::slice::from_ref(&key), true, &machine());
    assert!(keys.new_uses().is_empty());
    sign_in(&keys, &token).unwrap();
    keys.replace(std::slice::from_ref(&key), boot_clock::now());
    let uses = keys.new_uses();
    assert_eq!(uses.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), [&*key.id]);
    assert_eq!(keys.get(&key.id).unwrap().last_used(), Some(*uses[0].1));
    assert_eq!(keys.new_uses(), uses, "they are not stored yet");
    keys.uses_stored(&uses);
    assert!(keys.new_uses().is_empty());
}

#[test]
fn a_key_that_is_not_in_the_store_any_more_is_unknown_and_one_that_cannot_be_used_is_left_out() {
    let ((key, token), (bad, bad_token)) = (stored(&new_key_id()), stored(&new_key_id()));
    let bad = StoredKey { person: "anonymous".into(), tenant: "public".into(), ..bad };
    let keys = ManagedKeys::new(&[key, bad], false, &machine());
    assert!(sign_in(&keys, &token).is_ok());
    assert!(refusal(&keys, &bad_token).contains("unknown API key"));
    keys.replace(&[], boot_clock::now());
    assert!(refusal(&keys, &token).contains("unknown API key"));
}

#[test]
fn the_caller_of_a_key_is_one_of_its_persons() {
    let (key, token) = stored(&new_key_id());
    let keys = ManagedKeys::new(std::slice::from_ref(&key), false, &machine());
    assert_eq!(sign_in(&keys, &token).unwrap().persons().collect::<Vec<_>>(), ["ann", "admin"]);
    keys.put(&StoredKey { creators: vec!["admin".into(), "eve".into()], ..key });
    assert_eq!(
        sign_in(&keys, &token).unwrap().persons().collect::<Vec<_>>(),
        ["ann", "admin", "eve"],
        "it was rotated"
    );
}

#[test]
fn the_names_of_a_key_have_no_characters_that_nobody_sees() {
    for hidden in ["\u{202e}exe.nna", "ann\u{200b}", "\u{2066}ann\u{2069}", "a\u{ad}nn", "ann\n", "\u{feff}ann"] {
        for (person, tenant, role) in [(hidden, "acme", "admin"), ("ann", hidden, "admin"), ("ann", "acme", hidden)] {
            assert!(check_identity(person, tenant, &[role.to_owned()]).is_err(), "{person:?} {tenant:?} {role:?}");
        }
    }
    assert_eq!(check_identity("Änn 山田 O'Hara", "acme-1", &["on-call".to_owned()]), Ok(()));
}

#[test]
fn no_token_and_no_digest_shows_in_debug() {
    let (key, token) = stored(&new_key_id());
    let shown = format!("{:?} {key:?} {token:?}", ManagedKeys::new(std::slice::from_ref(&key), true, &machine()));
    let secret = token.expose().rsplit('_').next().unwrap();
    assert!(!shown.contains(secret) && !shown.contains(key.sha256.expose()), "{shown}");
}

#[test]
fn a_key_ends_by_the_databases_clock() {
    let clock = Arc::new(DatabaseClock::new());
    let expires: Timestamp = "2126-03-04T10:00:00Z".parse().unwrap();
    let (key, token) = stored("0000000000000001");
    let keys = ManagedKeys::new(&[StoredKey { expires: Some(expires), ..key }], false, &clock);
    clock.set(expires - SignedDuration::from_secs(60));
    assert!(sign_in(&keys, &token).is_ok() && keys.is_active("0000000000000001"));
    assert!(keys.new_uses().iter().all(|(_, used)| **used > expires - SignedDuration::from_secs(61)));
    clock.set(expires);
    assert!(sign_in(&keys, &token).is_err() && !keys.is_active("0000000000000001"));
}
