//! The real programs on real sockets. One binary, so that it is linked once.

mod api;
mod approvals;
mod card;
mod cli;
mod daemon;
mod grpc;
mod layering;
mod ledger;
mod library;
mod manifest;
mod policy;
mod processes;
mod readme;
mod sandbox;
mod smoke;
mod socket;
mod support;
