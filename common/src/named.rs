//! Enums whose values have names.

macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $($(#[$doc:meta])* $value:ident = $name:literal,)* }
    ) => {
        $(#[$meta])*
        pub enum $type { $($(#[$doc])* $value,)* }

        impl $type {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$value),*];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::named::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL
                    .into_iter()
                    .find(|known| known.name() == text)
                    .ok_or($crate::named::UnknownName)
            }
        }
    };
}

/// A text that is no value's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not one of the names")]
pub struct UnknownName;
