//! Wire.
pub mod answer;
pub mod budget;
pub mod count;
pub mod decode;
pub mod dialect;
pub mod estimate;
pub mod identity;
pub mod images;
pub mod reply;
pub mod request;
pub mod splice;
pub mod sse;
pub mod stream;
pub mod usage;
