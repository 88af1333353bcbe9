//! Enums with the list and the names of their variants.

/// Makes an enum, the list of its variants, and their names.
macro_rules! choices {
    ($(#[$about:meta])* pub enum $Name:ident { $($(#[$meaning:meta])* $Variant:ident,)* }) => {
        $(#[$about])*
        pub enum $Name { $($(#[$meaning])* $Variant,)* }

        impl $Name {
            /// All variants.
            pub const ALL: [$Name; [$(stringify!($Variant)),*].len()] = [$($Name::$Variant),*];

            /// The variant's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($Name::$Variant => stringify!($Variant),)*
                }
            }
        }
    };
}
pub(crate) use choices;
