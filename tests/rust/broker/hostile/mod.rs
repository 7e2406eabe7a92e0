//! What the embedded broker gives to peers that mean no good: to strangers nothing, and to bytes of
//! any kind no more memory and time than their number explains.

mod cost;
mod strangers;
mod world;
