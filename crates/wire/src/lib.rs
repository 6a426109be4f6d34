//! Wire.
pub mod answer;
pub mod budget;
pub mod count;
pub mod decode;
pub mod dialect;
pub mod engine_metrics;
pub mod estimate;
pub mod identity;
pub mod images;
pub mod late;
pub mod provider;
pub mod reply;
pub mod request;
pub mod splice;
pub mod sse;
pub mod stream;
pub mod usage;
