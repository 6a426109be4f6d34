//! What the fuzz targets check, apart from the fuzzer: ordinary tests replay the corpus through the same files.

pub mod configuration;
pub mod decode;
pub mod headers;
pub mod identity;
mod input;
pub mod reply;
pub mod request;
pub mod sse;
pub mod stream;
