//! Which of a server's prompts, resources and resource templates are offered here, and why others are not.

use rmcp::model::{Prompt, Resource, ResourceTemplate};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Catalogue, ListingPolicy, cut, name_of, source};
use crate::server::listing::Listing;
use crate::text::bounded;
use sekisho_calls::tool::{OfferKind, Unavailable};

/// Maximum bytes of the URI of a resource that is not offered.
const MAX_URI: usize = 256;

impl Catalogue {
    pub(super) fn add_beside_tools(&mut self, listing: &Listing, terms: &ListingPolicy<'_>) {
        for resource in &listing.resources {
            match terms.under_its_uri::<Resource>(OfferKind::Resource, resource, "uri") {
                Ok(resource) => self.resources.push(resource),
                Err(missing) => self.unavailable.push(missing),
            }
        }
        for template in &listing.templates {
            match terms.under_its_uri::<ResourceTemplate>(OfferKind::ResourceTemplate, template, "uriTemplate") {
                Ok(template) => self.templates.push(template),
                Err(missing) => self.unavailable.push(missing),
            }
        }
        for prompt in &listing.prompts {
            if let Err(missing) = self.add_prompt(prompt, terms) {
                self.unavailable.push(missing);
            }
        }
        for (kind, reason) in &listing.incomplete {
            self.unavailable.push(terms.missing(*kind, &terms.everything(*kind), reason));
        }
    }

    fn add_prompt(&mut self, prompt: &Value, terms: &ListingPolicy<'_>) -> Result<(), Unavailable> {
        let own = name_of(prompt);
        let missing = |reason: &str| {
            let without_name = || format!("{}__{own}", terms.server);
            let name = terms.names.qualified(own).map_or_else(without_name, |name| name.to_string());
            terms.missing(OfferKind::Prompt, &name, reason)
        };
        if let Some(problem) = violation::<Prompt>(prompt) {
            return Err(missing(&problem));
        }
        let name = terms
            .names
            .qualified(own)
            .ok_or_else(|| missing("its name has characters that model APIs refuse; give the server a prefix"))?;
        if self.prompt_names.contains_key(name.as_str()) {
            return Err(missing("the server has another prompt of this name"));
        }
        let mut prompt = prompt.clone();
        prompt["name"] = name.as_str().into();
        self.prompt_names.insert(name.to_string(), own.to_owned());
        self.prompts.push(prompt);
        Ok(())
    }
}

impl ListingPolicy<'_> {
    fn under_its_uri<T: DeserializeOwned>(
        &self,
        kind: OfferKind,
        item: &Value,
        member: &str,
    ) -> Result<Value, Unavailable> {
        let uri = item.get(member).and_then(Value::as_str);
        if let Some(problem) = violation::<T>(item) {
            let own = uri.unwrap_or_else(|| name_of(item));
            return Err(self.missing(kind, &self.names.uri(own), &problem));
        }
        let mut item = item.clone();
        item[member] = self.names.uri(uri.unwrap_or_default()).into();
        self.names.adopt_app(&mut item);
        Ok(item)
    }

    fn missing(&self, kind: OfferKind, name: &str, reason: &str) -> Unavailable {
        let name = bounded(&cut(name, MAX_URI));
        self.for_callers(Unavailable::of(kind, &source(self.server), name, bounded(reason)))
    }

    /// Stands for all of a kind.
    fn everything(&self, kind: OfferKind) -> String {
        match kind {
            OfferKind::Tool | OfferKind::Prompt => format!("{}__*", self.server),
            OfferKind::Resource | OfferKind::ResourceTemplate => self.names.uri("*"),
        }
    }
}

/// Why clients cannot read it: an item that violates the protocol makes them refuse the whole list.
fn violation<T: DeserializeOwned>(item: &Value) -> Option<String> {
    let error = serde_json::from_value::<T>(item.clone()).err()?;
    Some(format!("it violates the protocol: {error}"))
}
