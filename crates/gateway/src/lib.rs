//! The gateway: HTTP, configuration, stores, metrics, pages and the command line. It owns the only clock and the only randomness.

pub mod admin;
pub mod body;
pub mod clock;
pub mod commands;
pub mod config;
pub mod counter;
pub mod driver;
pub mod engine;
pub mod gateway;
pub mod health;
pub mod identify;
pub mod intake;
pub mod listen;
pub mod live;
pub mod metrics;
pub mod models;
pub mod passage;
pub mod problem;
pub mod proxy;
pub mod random;
pub mod reader;
pub mod relay;
pub mod serve;
pub mod tallies;
pub mod upstream;
pub mod usage_log;
