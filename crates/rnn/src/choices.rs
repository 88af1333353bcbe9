//! Enums whose variants' names are words of the interface.

/// Makes an enum, the list of its variants, and their names.
macro_rules! choices {
    ($(#[$about:meta])* pub enum $Name:ident { $($(#[$meaning:meta])* $Variant:ident,)* }) => {
        $(#[$about])*
        pub enum $Name { $($(#[$meaning])* $Variant,)* }

        impl $Name {
            /// All of them.
            pub const ALL: [$Name; [$(stringify!($Variant)),*].len()] = [$($Name::$Variant),*];

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($Name::$Variant => stringify!($Variant),)*
                }
            }
        }
    };
}
pub(crate) use choices;
