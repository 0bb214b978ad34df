//! Addresses of pages: all of a page's state is in its address.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::form_urlencoded;

/// The path with these fields as its query; fields without a value are left out.
pub(super) fn with_query<'a>(path: &str, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(fields.into_iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// An id in a path.
pub(super) fn encoded(id: &str) -> String {
    utf8_percent_encode(id, NON_ALPHANUMERIC).to_string().replace("%2D", "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_fields_that_are_set() {
        assert_eq!(with_query("/console/calls", [("tool", ""), ("code", "")]), "/console/calls");
        let address = with_query("/console/calls", [("tool", "a&b=<c>"), ("code", ""), ("before", "7")]);
        assert_eq!(address, "/console/calls?tool=a%26b%3D%3Cc%3E&before=7");
    }
}
