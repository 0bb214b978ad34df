//! The host's state of one call of a component, and the interfaces that a component may import.

use std::sync::Arc;

use wasmtime::Engine;
use wasmtime::component::{Linker, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_config::{WasiConfig, WasiConfigVariables};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::config_drafts;
use super::folders::{self, FolderView};
use super::growth::Growth;
use super::host_folders::Folders;
use super::printed::Printed;
use super::requests::{self, Requests};
use crate::host_call::ToolLink;
use sekisho_guest_protocol::{ComponentGrants, JobLimits};

/// Resources that the host has for a call: streams, timers, descriptors, requests. Each may hold as much as headers may have.
const MAX_RESOURCES: usize = 1_000;

/// Headers of one request, in memory.
const MAX_HEADER_BYTES: usize = 32 << 10;

/// The grants of every call of a component.
pub(super) struct Granted {
    environment: Vec<(String, String)>,
    config: WasiConfigVariables,
    /// The same, for earlier drafts of the interface.
    config_pairs: Vec<(String, String)>,
    pub(super) folders: Folders,
}

sekisho_core::debug_fields!(Granted { folders });

impl Granted {
    /// Errors: a folder that cannot be read.
    pub(super) fn new(grants: &ComponentGrants) -> Result<Self, String> {
        Ok(Self {
            environment: grants.environment.clone(),
            config: grants.config.iter().cloned().collect(),
            config_pairs: grants.config.clone(),
            folders: Folders::read(&grants.folders)?,
        })
    }

    pub(super) fn environment(&self) -> Vec<(String, String)> {
        self.environment.clone()
    }
}

/// The data of a store.
pub(super) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    http: WasiHttpCtx,
    requests: Requests,
    granted: Arc<Granted>,
    pub(super) growth: Growth,
}

impl State {
    /// Nothing of the machine is in it: no arguments, no standard input, no addresses. The two streams get the output.
    pub(super) fn new(
        granted: &Arc<Granted>,
        link: ToolLink,
        limits: &JobLimits,
        (stdout, stderr): (Printed, Printed),
    ) -> Self {
        let mut wasi = WasiCtx::builder();
        wasi.envs(&granted.environment)
            .stdout(stdout)
            .stderr(stderr)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(limits.random_bytes);
        let (mut table, mut http) = (ResourceTable::new(), WasiHttpCtx::new());
        table.set_max_capacity(MAX_RESOURCES);
        http.set_field_size_limit(MAX_HEADER_BYTES);
        Self {
            wasi: wasi.build(),
            table,
            http,
            requests: Requests::new(link, limits.tool_calls),
            granted: Arc::clone(granted),
            growth: Growth::new(limits.memory_bytes),
        }
    }

    fn folders(&mut self) -> FolderView<'_> {
        FolderView { folders: &self.granted.folders, table: &mut self.table }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.requests, table: &mut self.table, ctx: &mut self.http }
    }
}

/// All interfaces that can be granted, the interfaces for sockets without any right. The imports of a component were
/// checked before it was loaded.
/// Errors: when two have the same name.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    wasmtime_wasi_config::add_to_linker(&mut linker, |state: &mut State| WasiConfig::from(&state.granted.config))?;
    config_drafts::add_to_linker(&mut linker, |state: &State| &state.granted.config_pairs)?;
    linker.allow_shadowing(true);
    requests::bound_texts(&mut linker)?;
    // In place of the interfaces for files of the host.
    folders::add_to_linker(&mut linker, State::folders)?;
    Ok(linker)
}
