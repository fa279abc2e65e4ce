//! Random sequences against small models, with time that passes when it is told to.

mod breaker;
mod places;
mod rates;
mod shares;
