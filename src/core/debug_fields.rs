//! `Debug` for types whose other fields have none, are long, or are secret.

/// Implements `Debug` with these fields only: `debug_fields!(Type { one, other })`.
#[macro_export]
macro_rules! debug_fields {
    ($type:ident { $($field:ident),* }) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter
                    .debug_struct(stringify!($type))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
