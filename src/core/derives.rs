//! Implementations and methods that no derive makes.

/// Implements `Debug` with these fields only, where the others have none, are long, or are secret:
/// `debug_fields!(Type { one, other })`.
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

/// The method `as_str` of enums whose variants have names by `strum::IntoStaticStr`.
#[macro_export]
macro_rules! as_str {
    ($($type:ident),+) => {
        $(impl $type {
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        })+
    };
}

/// Methods of an `impl` that lend fields: `getters! { field: Type; }`.
#[macro_export]
macro_rules! getters {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)+) => {
        $($(#[$doc])*
        pub fn $field(&self) -> &$type {
            &self.$field
        })+
    };
}
