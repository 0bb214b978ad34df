//! JSON to values of WIT, and back, in the forms of [`schema`](super::schema).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value, json};
use wasmtime::component::Val;
use wasmtime::component::types::{Case, ComponentFunc, OptionType, Record, ResultType, Tuple, Type, Variant};

use super::schema::member;

/// A value without a counterpart, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// JSON Pointer (RFC 6901).
    pub(super) path: String,
    pub(super) message: String,
}

impl Mismatch {
    fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into() }
    }

    fn below(mut self, segment: impl std::fmt::Display) -> Self {
        self.path = format!("/{segment}{}", self.path);
        self
    }
}

/// The arguments of a call, as the function takes them.
/// Errors: the first value that its type does not have.
pub(super) fn parameters(function: &ComponentFunc, arguments: &Map<String, Value>) -> Result<Vec<Val>, Mismatch> {
    function.params().map(|(name, type_)| of_member(name, &type_, arguments)).collect()
}

fn of_member(name: &str, type_: &Type, members: &Map<String, Value>) -> Result<Val, Mismatch> {
    let name = member(name);
    let value = match (members.get(&name), type_) {
        (Some(value), _) => to_val(type_, value),
        (None, Type::Option(_)) => Ok(Val::Option(None)),
        (None, _) => Err(Mismatch::new("it is missing")),
    };
    value.map_err(|mismatch| mismatch.below(name))
}

fn to_val(type_: &Type, value: &Value) -> Result<Val, Mismatch> {
    Ok(match (type_, value) {
        (Type::Bool, Value::Bool(value)) => Val::Bool(*value),
        (Type::S8, Value::Number(number)) => Val::S8(integer(number)?),
        (Type::U8, Value::Number(number)) => Val::U8(integer(number)?),
        (Type::S16, Value::Number(number)) => Val::S16(integer(number)?),
        (Type::U16, Value::Number(number)) => Val::U16(integer(number)?),
        (Type::S32, Value::Number(number)) => Val::S32(integer(number)?),
        (Type::U32, Value::Number(number)) => Val::U32(integer(number)?),
        (Type::S64, Value::Number(number)) => Val::S64(integer(number)?),
        (Type::U64, Value::Number(number)) => Val::U64(integer(number)?),
        (Type::Float32, Value::Number(number)) => Val::Float32(single(number)?),
        (Type::Float64, Value::Number(number)) => Val::Float64(double(number)?),
        (Type::Char, Value::String(text)) => {
            let mut characters = text.chars();
            let (Some(character), None) = (characters.next(), characters.next()) else {
                return Err(Mismatch::new("it must be one character"));
            };
            Val::Char(character)
        }
        (Type::String, Value::String(text)) => Val::String(text.clone()),
        (Type::List(list), value) => of_list(&list.ty(), value)?,
        (Type::Record(record), Value::Object(members)) => of_record(record, members)?,
        (Type::Tuple(tuple), Value::Array(items)) => of_tuple(tuple, items)?,
        (Type::Variant(variant), Value::Object(members)) => of_variant(variant, members)?,
        (Type::Enum(cases), Value::String(name)) if cases.names().any(|case| case == name) => Val::Enum(name.clone()),
        (Type::Flags(flags), Value::Array(items)) => {
            let names: Vec<_> = flags.names().collect();
            let named = |item: &Value| item.as_str().filter(|name| names.contains(name)).map(str::to_owned);
            let set: Option<Vec<_>> = items.iter().map(named).collect();
            Val::Flags(set.ok_or_else(|| Mismatch::new(format!("it may have {}", names.join(", "))))?)
        }
        (Type::Option(option), value) => of_option(option, value)?,
        (Type::Result(result), Value::Object(members)) => of_result(result, members)?,
        _ => return Err(Mismatch::new(format!("it must be {}", described(type_)))),
    })
}

fn of_list(item: &Type, value: &Value) -> Result<Val, Mismatch> {
    match (item, value) {
        (Type::U8, Value::String(text)) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|_| Mismatch::new("it must be base64"))?;
            Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
        }
        (Type::U8, _) => Err(Mismatch::new("it must be base64")),
        (_, Value::Array(items)) => of_items(items, |_| item.clone()).map(Val::List),
        _ => Err(Mismatch::new("it must be a list")),
    }
}

fn of_tuple(tuple: &Tuple, items: &[Value]) -> Result<Val, Mismatch> {
    let types: Vec<_> = tuple.types().collect();
    if types.len() != items.len() {
        return Err(Mismatch::new(format!("it must have {} values", types.len())));
    }
    let mut types = types.into_iter();
    // As many as items.
    of_items(items, |_| types.next().unwrap_or(Type::Bool)).map(Val::Tuple)
}

fn of_items(items: &[Value], mut type_at: impl FnMut(usize) -> Type) -> Result<Vec<Val>, Mismatch> {
    let values = items.iter().enumerate();
    values.map(|(at, item)| to_val(&type_at(at), item).map_err(|mismatch| mismatch.below(at))).collect()
}

fn of_record(record: &Record, members: &Map<String, Value>) -> Result<Val, Mismatch> {
    let fields = record.fields().map(|field| {
        let value = of_member(field.name, &field.ty, members)?;
        Ok::<_, Mismatch>((field.name.to_owned(), value))
    });
    Ok(Val::Record(fields.collect::<Result<_, _>>()?))
}

fn of_variant(variant: &Variant, members: &Map<String, Value>) -> Result<Val, Mismatch> {
    let tag = members.get("tag").and_then(Value::as_str).unwrap_or_default();
    let Some(Case { name, ty }) = variant.cases().find(|case| case.name == tag) else {
        let names: Vec<_> = variant.cases().map(|case| case.name.to_owned()).collect();
        return Err(Mismatch::new(format!("it must be one of {}", names.join(", "))).below("tag"));
    };
    let value = match (ty, members.get("val")) {
        (Some(type_), Some(value)) => Some(to_val(&type_, value).map_err(|mismatch| mismatch.below("val"))?),
        (Some(_), None) => return Err(Mismatch::new("it is missing").below("val")),
        (None, _) => None,
    };
    Ok(Val::Variant(name.to_owned(), value.map(Box::new)))
}

fn of_option(option: &OptionType, value: &Value) -> Result<Val, Mismatch> {
    let type_ = option.ty();
    let some = match (&type_, value) {
        (_, Value::Null) => return Ok(Val::Option(None)),
        (Type::Option(_), Value::Object(members)) => {
            let some = members.get("some").ok_or_else(|| Mismatch::new("it must have `some`"))?;
            to_val(&type_, some).map_err(|mismatch| mismatch.below("some"))?
        }
        _ => to_val(&type_, value)?,
    };
    Ok(Val::Option(Some(Box::new(some))))
}

fn of_result(result: &ResultType, members: &Map<String, Value>) -> Result<Val, Mismatch> {
    let side = |name: &str, type_: Option<Type>, value: &Value| {
        let value = type_.map(|type_| to_val(&type_, value).map_err(|mismatch| mismatch.below(name))).transpose()?;
        Ok::<_, Mismatch>(value.map(Box::new))
    };
    match (members.get("ok"), members.get("err")) {
        (Some(value), None) => Ok(Val::Result(Ok(side("ok", result.ok(), value)?))),
        (None, Some(value)) => Ok(Val::Result(Err(side("err", result.err(), value)?))),
        _ => Err(Mismatch::new("it must have either `ok` or `err`")),
    }
}

/// JSON Schema counts 3.0 as an integer, too.
fn integer<T: TryFrom<i128>>(number: &Number) -> Result<T, Mismatch> {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    let whole = whole.or_else(|| {
        let number = number.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 1e19)?;
        #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in the range")]
        Some(number as i128)
    });
    let fitting = whole.and_then(|whole| T::try_from(whole).ok());
    fitting.ok_or_else(|| Mismatch::new("it must be an integer within the range of its type"))
}

fn double(number: &Number) -> Result<f64, Mismatch> {
    number.as_f64().ok_or_else(|| Mismatch::new("it must be a number"))
}

fn single(number: &Number) -> Result<f32, Mismatch> {
    #[expect(clippy::cast_possible_truncation, reason = "the function takes no more digits")]
    let single = double(number)? as f32;
    if single.is_finite() { Ok(single) } else { Err(Mismatch::new("it is too large for an f32")) }
}

fn described(type_: &Type) -> &'static str {
    match type_ {
        Type::Bool => "true or false",
        Type::Char => "one character",
        Type::String => "a text",
        Type::Tuple(_) => "a list",
        Type::Record(_) => "an object",
        Type::Variant(_) => "an object with `tag`, and `val` where the case has a value",
        Type::Enum(_) => "one of its cases",
        Type::Flags(_) => "a list of its flags",
        Type::Result(_) => "an object with `ok` or `err`",
        Type::Own(_) | Type::Borrow(_) | Type::Future(_) | Type::Stream(_) | Type::ErrorContext => {
            "a value that has no form in JSON"
        }
        _ => "a number",
    }
}

/// Why a result has no JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    TooLong,
    /// A number that JSON does not have.
    Mismatch(Mismatch),
}

impl Unwritten {
    fn below(self, segment: impl std::fmt::Display) -> Self {
        match self {
            Self::TooLong => Self::TooLong,
            Self::Mismatch(mismatch) => Self::Mismatch(mismatch.below(segment)),
        }
    }
}

impl From<Mismatch> for Unwritten {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

/// How many bytes a result takes as values, at most, for each that it counts with while it is read. A flag that is set
/// is a text of its own, and counts only with its name; in a list there can be many.
pub(super) fn expansion(function: &ComponentFunc) -> usize {
    function.results().map(|type_| expansion_of(&type_, false)).max().unwrap_or(1)
}

/// Types of WIT are finite, and a function has 2,000 at most.
fn expansion_of(type_: &Type, is_listed: bool) -> usize {
    let of = |type_: Type| expansion_of(&type_, is_listed);
    let largest = match type_ {
        Type::Flags(flags) if is_listed => Some(expansion_of_flags(flags.names())),
        Type::List(list) => Some(expansion_of(&list.ty(), true)),
        Type::Record(record) => record.fields().map(|field| of(field.ty)).max(),
        Type::Tuple(tuple) => tuple.types().map(of).max(),
        Type::Variant(variant) => variant.cases().filter_map(|case| case.ty).map(of).max(),
        Type::Option(option) => Some(of(option.ty())),
        Type::Result(result) => [result.ok(), result.err()].into_iter().flatten().map(of).max(),
        _ => None,
    };
    largest.unwrap_or(1)
}

/// With all of them set. The texts are in a vector that grows by doubling, each in an allocation of its own.
fn expansion_of_flags<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    const LEAST_ALLOCATION: usize = 32;
    let (flags, bytes) = names.fold((0_usize, 0), |(flags, bytes), name| (flags + 1, bytes + name.len()));
    let texts = flags.next_power_of_two() * size_of::<String>() + flags * LEAST_ALLOCATION + bytes;
    (size_of::<Val>() + texts).div_ceil(size_of::<Val>() + bytes)
}

/// The result of a function, as JSON: its value, or its error.
/// Errors: a number without a form in JSON, or a result that would have more bytes than `max_bytes`.
pub(super) fn returned(
    function: &ComponentFunc,
    results: &[Val],
    max_bytes: u64,
) -> Result<Result<Value, Value>, Unwritten> {
    let (Some(type_), Some(value)) = (function.results().next(), results.first()) else { return Ok(Ok(Value::Null)) };
    let mut writer = Writer { left: max_bytes };
    match (&type_, value) {
        (Type::Result(result), Val::Result(Ok(value))) => writer.side(result.ok(), value.as_deref()).map(Ok),
        (Type::Result(result), Val::Result(Err(error))) => writer.side(result.err(), error.as_deref()).map(Err),
        _ => writer.value(&type_, value).map(Ok),
    }
}

/// A value in JSON takes many times the memory of its origin: a flag has one bit. So values that cannot fit into the
/// result are not made. Values count with the minimum bytes of their JSON, separators included.
struct Writer {
    left: u64,
}

impl Writer {
    fn take(&mut self, bytes: usize) -> Result<(), Unwritten> {
        self.left = self.left.checked_sub(bytes as u64).ok_or(Unwritten::TooLong)?;
        Ok(())
    }

    fn value(&mut self, type_: &Type, value: &Val) -> Result<Value, Unwritten> {
        self.take(1)?;
        Ok(match (type_, value) {
            (_, Val::Bool(value)) => (*value).into(),
            (_, Val::S8(number)) => (*number).into(),
            (_, Val::U8(number)) => (*number).into(),
            (_, Val::S16(number)) => (*number).into(),
            (_, Val::U16(number)) => (*number).into(),
            (_, Val::S32(number)) => (*number).into(),
            (_, Val::U32(number)) => (*number).into(),
            (_, Val::S64(number)) => (*number).into(),
            (_, Val::U64(number)) => (*number).into(),
            (_, Val::Float32(number)) => to_number(f64::from(*number))?,
            (_, Val::Float64(number)) => to_number(*number)?,
            (_, Val::Char(character)) => character.to_string().into(),
            (_, Val::String(text) | Val::Enum(text)) => self.text(text)?,
            (_, Val::Flags(names)) => Value::Array(names.iter().map(|name| self.text(name)).collect::<Result<_, _>>()?),
            (Type::List(list), Val::List(items)) => self.list(&list.ty(), items)?,
            (Type::Tuple(tuple), Val::Tuple(items)) => {
                let items = tuple.types().zip(items).enumerate();
                let items = items.map(|(at, (type_, item))| self.value(&type_, item).map_err(|error| error.below(at)));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            (Type::Record(record), Val::Record(members)) => {
                let members = record.fields().zip(members).map(|(field, (_, value))| {
                    let name = member(field.name);
                    self.take(name.len() + 3)?;
                    let value = self.value(&field.ty, value).map_err(|error| error.below(&name))?;
                    Ok::<_, Unwritten>((name, value))
                });
                Value::Object(members.collect::<Result<_, _>>()?)
            }
            (Type::Variant(variant), Val::Variant(name, value)) => self.variant(variant, name, value.as_deref())?,
            (_, Val::Option(None)) => Value::Null,
            (Type::Option(option), Val::Option(Some(value))) => {
                let type_ = option.ty();
                let value = self.value(&type_, value)?;
                if matches!(type_, Type::Option(_)) { json!({"some": value}) } else { value }
            }
            (Type::Result(result), Val::Result(Ok(value))) => json!({"ok": self.side(result.ok(), value.as_deref())?}),
            (Type::Result(result), Val::Result(Err(error))) => {
                json!({"err": self.side(result.err(), error.as_deref())?})
            }
            _ => return Err(Mismatch::new("it has no form in JSON").into()),
        })
    }

    fn text(&mut self, text: &str) -> Result<Value, Unwritten> {
        self.take(text.len() + 1)?;
        Ok(text.into())
    }

    fn side(&mut self, type_: Option<Type>, value: Option<&Val>) -> Result<Value, Unwritten> {
        match (type_, value) {
            (Some(type_), Some(value)) => self.value(&type_, value),
            _ => Ok(Value::Null),
        }
    }

    fn variant(&mut self, variant: &Variant, name: &str, value: Option<&Val>) -> Result<Value, Unwritten> {
        self.take(name.len() + 9)?;
        // There may be thousands of cases: they are not searched for one without a value.
        let Some(value) = value else { return Ok(json!({"tag": name})) };
        let type_ = variant.cases().find(|case| case.name == name).and_then(|case| case.ty);
        let value = self.side(type_, Some(value)).map_err(|error| error.below("val"))?;
        Ok(json!({"tag": name, "val": value}))
    }

    fn list(&mut self, item: &Type, items: &[Val]) -> Result<Value, Unwritten> {
        if matches!(item, Type::U8) {
            self.take(items.len())?;
            let bytes = items.iter().filter_map(|item| if let Val::U8(byte) = item { Some(*byte) } else { None });
            return Ok(BASE64_STANDARD.encode(bytes.collect::<Vec<_>>()).into());
        }
        let items = items.iter().enumerate();
        let items = items.map(|(at, value)| self.value(item, value).map_err(|error| error.below(at)));
        Ok(Value::Array(items.collect::<Result<_, _>>()?))
    }
}

fn to_number(number: f64) -> Result<Value, Mismatch> {
    let finite = Number::from_f64(number).map(Value::Number);
    finite.ok_or_else(|| Mismatch::new(format!("{number} is no number in JSON")))
}

#[cfg(test)]
mod tests;
