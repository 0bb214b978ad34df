//! JSON Schema of WIT types. [`values`](super::values) has the same forms: each type here has a value there.
//!
//! | WIT | JSON |
//! |---|---|
//! | `record` | an object; members with `option` may be left out |
//! | `variant` | `{"tag": "case", "val": …}` |
//! | `enum`, `flags` | a text, a list of texts |
//! | `option<T>` | `T` or null; inside another `option`: `{"some": T}` or null |
//! | `result<T, E>` | `{"ok": T}` or `{"err": E}`; as the result of a function the value itself, or an error of the call |
//! | `list<u8>` | base64 |
//! | `tuple<A, B>`, `list<T>` | lists |
//!
//! Names of parameters and members have `_` where WIT has `-`, so that programs can write them.

use serde_json::{Map, Number, Value, json};
use wit_parser::{Docs, Function, Handle, Resolve, Type, TypeDefKind, TypeId, Variant};

/// Types and names in one schema. Types of WIT are not recursive, but each may name another one several times.
const MAX_TYPES: usize = 2_000;

/// Maximum length of a name. Each value of a record has the names of its members.
const MAX_NAME_BYTES: usize = 100;

/// Maximum depth of types in one another: the maximum depth of values that programs exchange with tools.
const MAX_DEPTH: usize = 60;

/// The schemas of one function.
#[derive(Debug)]
pub(super) struct FunctionSchemas {
    pub(super) parameters: Value,
    /// None for a function without a result.
    pub(super) output: Option<Value>,
}

/// The name of a parameter or a member in JSON.
pub(super) fn member(name: &str) -> String {
    name.replace('-', "_")
}

/// Errors: the type that has no form in JSON, by its name.
pub(super) fn of_function(resolve: &Resolve, function: &Function) -> Result<FunctionSchemas, String> {
    let mut writer = Writer { resolve, left: MAX_TYPES };
    let members = function.params.iter().map(|parameter| (parameter.name.as_str(), &parameter.ty, &NO_DOCS));
    let parameters = writer.object(members, 0).map_err(|type_| format!("a parameter has {type_}"))?;
    let result = match &function.result {
        Some(Type::Id(id)) => match &resolve.types[writer.behind(*id)].kind {
            // An `err` is an error of the call, but its type must have a form, too.
            TypeDefKind::Result(result) => {
                result
                    .err
                    .map(|err| writer.of(&err, 0))
                    .transpose()
                    .map_err(|type_| format!("the error has {type_}"))?;
                result.ok
            }
            _ => function.result,
        },
        result => *result,
    };
    let output = result.map(|type_| writer.of(&type_, 0)).transpose();
    Ok(FunctionSchemas { parameters, output: output.map_err(|type_| format!("the result has {type_}"))? })
}

/// Parameters have none of their own in WIT.
static NO_DOCS: Docs = Docs { contents: None };

struct Writer<'a> {
    resolve: &'a Resolve,
    left: usize,
}

impl Writer<'_> {
    /// Errors: the type that has no form in JSON.
    fn of(&mut self, type_: &Type, depth: usize) -> Result<Value, String> {
        self.left = self.left.checked_sub(1).filter(|_| depth < MAX_DEPTH).ok_or_else(too_large)?;
        Ok(match type_ {
            Type::Bool => json!({"type": "boolean"}),
            Type::U8 => integer(u8::MIN, u8::MAX),
            Type::U16 => integer(u16::MIN, u16::MAX),
            Type::U32 => integer(u32::MIN, u32::MAX),
            Type::U64 => integer(u64::MIN, u64::MAX),
            Type::S8 => integer(i8::MIN, i8::MAX),
            Type::S16 => integer(i16::MIN, i16::MAX),
            Type::S32 => integer(i32::MIN, i32::MAX),
            Type::S64 => integer(i64::MIN, i64::MAX),
            Type::F32 | Type::F64 => json!({"type": "number"}),
            Type::Char => json!({"type": "string", "minLength": 1, "maxLength": 1}),
            Type::String => json!({"type": "string"}),
            Type::ErrorContext => return Err("an `error-context`".to_owned()),
            Type::Id(id) => self.of_defined(*id, depth)?,
        })
    }

    fn of_defined(&mut self, id: TypeId, depth: usize) -> Result<Value, String> {
        let resolve = self.resolve;
        let type_ = &resolve.types[id];
        let inside = depth + 1;
        let mut schema = match &type_.kind {
            TypeDefKind::Record(record) => {
                let members = record.fields.iter().map(|field| (field.name.as_str(), &field.ty, &field.docs));
                self.object(members, inside)?
            }
            TypeDefKind::Tuple(tuple) => {
                let items: Vec<_> = tuple.types.iter().map(|type_| self.of(type_, inside)).collect::<Result<_, _>>()?;
                let count = items.len();
                json!({"type": "array", "prefixItems": items, "items": false, "minItems": count, "maxItems": count})
            }
            TypeDefKind::Variant(variant) => self.variant(variant, inside)?,
            TypeDefKind::Enum(cases) => {
                json!({"type": "string", "enum": self.names(cases.cases.iter().map(|case| &case.name))?})
            }
            TypeDefKind::Flags(flags) => {
                let names = self.names(flags.flags.iter().map(|flag| &flag.name))?;
                json!({"type": "array", "items": {"type": "string", "enum": names}, "uniqueItems": true})
            }
            TypeDefKind::Option(some) => {
                let schema = self.of(some, inside)?;
                let schema = if self.is_option(some) { only("some", &schema) } else { schema };
                json!({"anyOf": [schema, {"type": "null"}]})
            }
            TypeDefKind::Result(result) => {
                let mut side = |name, type_: Option<Type>| {
                    let schema = type_.map(|type_| self.of(&type_, inside)).transpose()?;
                    Ok::<_, String>(only(name, &schema.unwrap_or_else(|| json!({"type": "null"}))))
                };
                json!({"oneOf": [side("ok", result.ok)?, side("err", result.err)?]})
            }
            TypeDefKind::List(Type::U8) => json!({"type": "string", "contentEncoding": "base64"}),
            TypeDefKind::List(item) => json!({"type": "array", "items": self.of(item, inside)?}),
            TypeDefKind::Type(same) => self.of(same, inside)?,
            TypeDefKind::Resource | TypeDefKind::Handle(_) => {
                return Err(format!("the resource `{}`", self.name_of_resource(id)));
            }
            other => return Err(format!("a `{}`", other.as_str())),
        };
        describe(&mut schema, &type_.docs);
        Ok(schema)
    }

    fn object<'m>(
        &mut self,
        members: impl Iterator<Item = (&'m str, &'m Type, &'m Docs)>,
        depth: usize,
    ) -> Result<Value, String> {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for (name, type_, docs) in members {
            self.name(name)?;
            let mut schema = self.of(type_, depth)?;
            describe(&mut schema, docs);
            if !self.is_option(type_) {
                required.push(member(name));
            }
            properties.insert(member(name), schema);
        }
        Ok(json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}))
    }

    fn variant(&mut self, variant: &Variant, depth: usize) -> Result<Value, String> {
        let mut cases = Vec::new();
        for case in &variant.cases {
            self.name(&case.name)?;
            let mut properties = Map::from_iter([("tag".to_owned(), json!({"const": case.name}))]);
            let mut required = vec!["tag"];
            if let Some(type_) = &case.ty {
                properties.insert("val".to_owned(), self.of(type_, depth)?);
                required.push("val");
            }
            let mut schema = json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            });
            describe(&mut schema, &case.docs);
            cases.push(schema);
        }
        Ok(json!({"oneOf": cases}))
    }

    /// Counts a name.
    fn name<'n>(&mut self, name: &'n str) -> Result<&'n str, String> {
        self.left = self.left.checked_sub(1).filter(|_| name.len() <= MAX_NAME_BYTES).ok_or_else(too_large)?;
        Ok(name)
    }

    fn names<'n>(&mut self, names: impl Iterator<Item = &'n String>) -> Result<Vec<&'n str>, String> {
        names.map(|name| self.name(name)).collect()
    }

    /// The type that an alias stands for.
    fn behind(&self, id: TypeId) -> TypeId {
        match &self.resolve.types[id].kind {
            TypeDefKind::Type(Type::Id(other)) => self.behind(*other),
            _ => id,
        }
    }

    fn is_option(&self, type_: &Type) -> bool {
        let Type::Id(id) = type_ else { return false };
        matches!(self.resolve.types[self.behind(*id)].kind, TypeDefKind::Option(_))
    }

    fn name_of_resource(&self, id: TypeId) -> &str {
        let type_ = &self.resolve.types[id];
        match (&type_.kind, &type_.name) {
            (TypeDefKind::Handle(Handle::Own(of) | Handle::Borrow(of)), _) => self.name_of_resource(*of),
            (_, Some(name)) => name,
            (_, None) => "without a name",
        }
    }
}

fn integer(least: impl Into<Number>, most: impl Into<Number>) -> Value {
    let (least, most): (Number, Number) = (least.into(), most.into());
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// An object with this one member.
fn only(name: &str, schema: &Value) -> Value {
    json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false})
}

fn describe(schema: &mut Value, docs: &Docs) {
    if let (Some(schema), Some(text)) = (schema.as_object_mut(), docs.contents.as_deref()) {
        schema.insert("description".to_owned(), text.trim().into());
    }
}

fn too_large() -> String {
    format!(
        "more than {MAX_TYPES} types and names, more than {MAX_DEPTH} inside each other, or a name with more than \
         {MAX_NAME_BYTES} bytes"
    )
}

#[cfg(test)]
mod tests;
