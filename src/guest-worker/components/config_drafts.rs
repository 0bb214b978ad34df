//! Earlier drafts of `wasi:config`, which components of the field import. The library has one version, and a version with a
//! suffix is compatible with no other.

use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

const DRAFTS: [&str; 2] = ["wasi:config/store@0.2.0-draft", "wasi:config/runtime@0.2.0-draft"];

/// Never answered: the values are in memory.
#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum ConfigError {
    #[component(name = "upstream")]
    Upstream(String),
    #[component(name = "io")]
    Io(String),
}

/// # Errors
/// When the linker has a name already.
pub(super) fn add_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    values: fn(&T) -> &Vec<(String, String)>,
) -> wasmtime::Result<()> {
    for name in DRAFTS {
        let mut draft = linker.instance(name)?;
        draft.func_wrap("get", move |store: StoreContextMut<'_, T>, (key,): (String,)| {
            let found = values(store.data()).iter().find(|(name, _)| *name == key);
            Ok((Ok::<_, ConfigError>(found.map(|(_, value)| value.clone())),))
        })?;
        draft.func_wrap("get-all", move |store: StoreContextMut<'_, T>, (): ()| {
            Ok((Ok::<_, ConfigError>(values(store.data()).clone()),))
        })?;
    }
    Ok(())
}
