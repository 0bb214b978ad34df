//! Earlier drafts of `wasi:config`, which components of the field import. The library has one version, and a version with a
//! suffix is compatible with no other.

use wasmtime::StoreContextMut;
use wasmtime::component::types::ComponentFunc;
use wasmtime::component::{Linker, Val};

const DRAFTS: [&str; 2] = ["wasi:config/store@0.2.0-draft", "wasi:config/runtime@0.2.0-draft"];

/// Errors: when the linker has a name already.
pub(super) fn add_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    values: fn(&T) -> &Vec<(String, String)>,
) -> wasmtime::Result<()> {
    let get = move |store: StoreContextMut<'_, T>, _: ComponentFunc, given: &[Val], results: &mut [Val]| {
        let is_it = |(name, _): &&(String, String)| matches!(given, [Val::String(key)] if key == name);
        let found = values(store.data()).iter().find(is_it);
        answer(results, Val::Option(found.map(|(_, value)| Box::new(Val::String(value.clone())))))
    };
    let get_all = move |store: StoreContextMut<'_, T>, _: ComponentFunc, _: &[Val], results: &mut [Val]| {
        let pair =
            |(name, value): &(String, String)| Val::Tuple([name, value].map(|text| Val::String(text.clone())).into());
        answer(results, Val::List(values(store.data()).iter().map(pair).collect()))
    };
    for name in DRAFTS {
        let mut draft = linker.instance(name)?;
        draft.func_new("get", get)?;
        draft.func_new("get-all", get_all)?;
    }
    Ok(())
}

/// The values are in memory: there is no error of the interface. A component may import the function with another type.
fn answer(results: &mut [Val], value: Val) -> wasmtime::Result<()> {
    let [result] = results else { wasmtime::bail!("it imports a function of wasi:config without its result") };
    *result = Val::Result(Ok(Some(Box::new(value))));
    Ok(())
}
