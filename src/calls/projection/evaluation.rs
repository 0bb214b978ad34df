//! Evaluates a JMESPath syntax tree and counts the cost.
//!
//! `[@,@]|[@,@]|…` doubles its value at every step; shared nodes make that cheap until something visits
//! the whole. So every new node and everything that a function or comparison may visit is counted in bytes,
//! before the work is done, against the call's memory limit; so are the levels of the tree, where the stack is small.

use std::cmp::Ordering;
use std::sync::Arc;

use jmespath::ast::Ast;
use jmespath::{Context, DEFAULT_RUNTIME, ErrorReason, JmespathError, Rcvar, RuntimeError, Variable};

use super::{Bounds, explained};
use sekisho_core::error::CallError;

/// Bytes counted for a node, in addition to its text.
const NODE_BYTES: usize = 16;

pub(super) struct Evaluation<'a> {
    context: Context<'a>,
    bytes_left: usize,
    levels_left: usize,
    max_levels: usize,
    stop: &'a dyn Fn() -> bool,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(query: &'a str, bounds: Bounds, stop: &'a dyn Fn() -> bool) -> Self {
        let Bounds { memory, depth, output: _ } = bounds;
        let context = Context::new(query, &DEFAULT_RUNTIME);
        Self { context, bytes_left: memory, levels_left: depth, max_levels: depth, stop }
    }

    /// Errors: `tool_error` with the position in the expression, or that it exceeds a bound.
    pub(super) fn evaluate(&mut self, tree: &Ast, data: &Rcvar) -> Result<Rcvar, CallError> {
        let Some(left) = self.levels_left.checked_sub(1) else {
            return Err(CallError::tool(format!("the query has more than {} levels", self.max_levels)));
        };
        self.levels_left = left;
        let value = self.node(tree, data);
        self.levels_left = left + 1;
        value
    }

    fn node(&mut self, tree: &Ast, data: &Rcvar) -> Result<Rcvar, CallError> {
        self.spend(NODE_BYTES)?;
        match tree {
            Ast::Identity { .. } => Ok(Arc::clone(data)),
            Ast::Field { name, .. } => Ok(data.get_field(name)),
            Ast::Index { idx, .. } => Ok(element(data, *idx)),
            Ast::Literal { value, .. } => Ok(Arc::clone(value)),
            Ast::Subexpr { lhs, rhs, .. } => {
                let inner = self.evaluate(lhs, data)?;
                self.evaluate(rhs, &inner)
            }
            Ast::Or { lhs, rhs, .. } => {
                let left = self.evaluate(lhs, data)?;
                if left.is_truthy() { Ok(left) } else { self.evaluate(rhs, data) }
            }
            Ast::And { lhs, rhs, .. } => {
                let left = self.evaluate(lhs, data)?;
                if left.is_truthy() { self.evaluate(rhs, data) } else { Ok(left) }
            }
            Ast::Not { node, .. } => Ok(Variable::Bool(!self.evaluate(node, data)?.is_truthy()).into()),
            Ast::Condition { predicate, then, .. } => {
                if self.evaluate(predicate, data)?.is_truthy() {
                    self.evaluate(then, data)
                } else {
                    Ok(null())
                }
            }
            Ast::Comparison { comparator, lhs, rhs, .. } => {
                let (left, right) = (self.evaluate(lhs, data)?, self.evaluate(rhs, data)?);
                self.spend_on(&left)?;
                self.spend_on(&right)?;
                Ok(left.compare(comparator, &right).map_or_else(null, |holds| Variable::Bool(holds).into()))
            }
            Ast::ObjectValues { node, .. } => {
                let subject = self.evaluate(node, data)?;
                let Some(fields) = subject.as_object() else { return Ok(null()) };
                self.array(fields.values().cloned())
            }
            Ast::Projection { lhs, rhs, .. } => {
                let left = self.evaluate(lhs, data)?;
                let Some(elements) = left.as_array() else { return Ok(null()) };
                let projected = self.each(elements, rhs)?;
                Ok(Variable::Array(projected.into_iter().filter(|value| !value.is_null()).collect()).into())
            }
            Ast::Flatten { node, .. } => self.flatten(node, data),
            Ast::Slice { start, stop, step, offset } => self.slice(data, *start, *stop, *step, *offset),
            Ast::MultiList { .. } | Ast::MultiHash { .. } if data.is_null() => Ok(null()),
            Ast::MultiList { elements, .. } => {
                let list: Result<Vec<_>, _> = elements.iter().map(|element| self.evaluate(element, data)).collect();
                Ok(Variable::Array(list?).into())
            }
            Ast::MultiHash { elements, .. } => {
                let fields = elements.iter().map(|pair| Ok((pair.key.clone(), self.evaluate(&pair.value, data)?)));
                Ok(Variable::Object(fields.collect::<Result<_, CallError>>()?).into())
            }
            Ast::Function { name, args, offset } => self.call(name, args, *offset, data),
            Ast::Expref { offset, .. } => Err(self.invalid(*offset, "a value", "an expression (&…)", 0)),
        }
    }

    fn each(&mut self, elements: &[Rcvar], tree: &Ast) -> Result<Vec<Rcvar>, CallError> {
        elements.iter().map(|element| self.evaluate(tree, element)).collect()
    }

    fn array(&mut self, elements: impl ExactSizeIterator<Item = Rcvar>) -> Result<Rcvar, CallError> {
        self.spend(NODE_BYTES * elements.len())?;
        Ok(Variable::Array(elements.collect()).into())
    }

    fn flatten(&mut self, node: &Ast, data: &Rcvar) -> Result<Rcvar, CallError> {
        let nested = self.evaluate(node, data)?;
        let Some(elements) = nested.as_array() else { return Ok(null()) };
        let mut flat = Vec::new();
        for element in elements {
            let inner = element.as_array().map_or(std::slice::from_ref(element), Vec::as_slice);
            self.spend(NODE_BYTES * inner.len())?;
            flat.extend_from_slice(inner);
        }
        Ok(Variable::Array(flat).into())
    }

    fn slice(
        &mut self,
        data: &Rcvar,
        start: Option<i32>,
        stop: Option<i32>,
        step: i32,
        offset: usize,
    ) -> Result<Rcvar, CallError> {
        let Some(elements) = data.as_array() else { return Ok(null()) };
        if step == 0 {
            return Err(self.failed(offset, RuntimeError::InvalidSlice));
        }
        self.spend(NODE_BYTES * elements.len())?;
        // A step past the end is limited to the end; the crate's sum would overflow.
        let reach = i32::try_from(elements.len()).unwrap_or(i32::MAX / 4).saturating_add(1);
        let bound = |end: Option<i32>| end.map(|end| end.clamp(-reach, reach));
        Ok(data
            .slice(bound(start), bound(stop), step.clamp(-reach, reach))
            .map_or_else(null, |taken| Variable::Array(taken).into()))
    }

    fn call(&mut self, name: &str, args: &[Ast], offset: usize, data: &Rcvar) -> Result<Rcvar, CallError> {
        match (name, args) {
            ("map", [expression, array]) => {
                let (elements, expression) = (self.evaluate(array, data)?, self.expression(expression, offset, 0)?);
                let elements = self.elements(&elements, offset, 1)?;
                return Ok(Variable::Array(self.each(elements, expression)?).into());
            }
            ("sort_by" | "min_by" | "max_by", [array, expression]) => {
                let (elements, expression) = (self.evaluate(array, data)?, self.expression(expression, offset, 1)?);
                return self.ordered(name, &elements, expression, offset);
            }
            _ => {}
        }
        let args = args.iter().map(|argument| self.evaluate(argument, data)).collect::<Result<Vec<_>, _>>()?;
        if !LOOKS_AT_ONE_LEVEL.contains(&name) {
            args.iter().try_for_each(|argument| self.spend_on(argument))?;
        }
        args.iter().try_for_each(|argument| self.spend(NODE_BYTES * length(argument)))?;
        if let ("join", [glue, strings]) = (name, args.as_slice()) {
            self.spend(length(glue).saturating_mul(length(strings)))?;
        }
        self.context.offset = offset;
        let Some(function) = DEFAULT_RUNTIME.get_function(name) else {
            return Err(self.failed(offset, RuntimeError::UnknownFunction(name.to_owned())));
        };
        function.evaluate(&args, &mut self.context).map_err(|error| explained(&error))
    }

    /// `sort_by`, `min_by`, `max_by`: all keys are numbers, or all are strings.
    fn ordered(&mut self, name: &str, array: &Rcvar, key: &Ast, offset: usize) -> Result<Rcvar, CallError> {
        let elements = self.elements(array, offset, 0)?;
        let keys = self.each(elements, key)?;
        let alike = keys.iter().all(|key| key.is_number()) || keys.iter().all(|key| key.is_string());
        if !alike {
            return Err(self.invalid(offset, "an expression giving only numbers or only strings", "others", 1));
        }
        keys.iter().try_for_each(|key| self.spend_on(key))?;
        let mut order: Vec<_> = keys.iter().zip(elements).collect();
        order.sort_by(|(a, _), (b, _)| compare_keys(a, b));
        let (first, last) = (order.first(), order.last());
        let highest = last.and_then(|(top, _)| order.iter().find(|(key, _)| compare_keys(key, top).is_eq()));
        match name {
            "min_by" => Ok(first.map_or_else(null, |(_, element)| Arc::clone(element))),
            "max_by" => Ok(highest.map_or_else(null, |(_, element)| Arc::clone(element))),
            _ => self.array(order.into_iter().map(|(_, element)| Arc::clone(element))),
        }
    }

    fn expression<'t>(&self, tree: &'t Ast, offset: usize, position: usize) -> Result<&'t Ast, CallError> {
        match tree {
            Ast::Expref { ast, .. } => Ok(ast),
            _ => Err(self.invalid(offset, "an expression (&…)", "a value", position)),
        }
    }

    fn elements<'v>(&self, value: &'v Rcvar, offset: usize, position: usize) -> Result<&'v [Rcvar], CallError> {
        value
            .as_array()
            .map(Vec::as_slice)
            .ok_or_else(|| self.invalid(offset, "array", &value.get_type().to_string(), position))
    }

    /// Counts a whole value, shared parts as often as they occur.
    fn spend_on(&mut self, value: &Rcvar) -> Result<(), CallError> {
        self.spend(NODE_BYTES)?;
        match &**value {
            Variable::String(text) => self.spend(text.len()),
            Variable::Array(elements) => elements.iter().try_for_each(|element| self.spend_on(element)),
            Variable::Object(fields) => fields.iter().try_for_each(|(key, field)| {
                self.spend(key.len())?;
                self.spend_on(field)
            }),
            _ => Ok(()),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), CallError> {
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            return Err(CallError::tool("the query exceeds the memory limit of one call; select less first"));
        };
        self.bytes_left = left;
        // The clock is checked only now and then: reading it costs as much as a step.
        if left % 1024 < bytes && (self.stop)() {
            return Err(CallError::tool("the query takes too long; select less first"));
        }
        Ok(())
    }

    fn failed(&self, offset: usize, reason: RuntimeError) -> CallError {
        explained(&JmespathError::new(self.context.expression, offset, ErrorReason::Runtime(reason)))
    }

    fn invalid(&self, offset: usize, expected: &str, actual: &str, position: usize) -> CallError {
        self.failed(
            offset,
            RuntimeError::InvalidType { expected: expected.to_owned(), actual: actual.to_owned(), position },
        )
    }
}

/// Functions that only read the first level of their arguments.
const LOOKS_AT_ONE_LEVEL: [&str; 7] = ["length", "keys", "values", "type", "not_null", "to_array", "reverse"];

fn null() -> Rcvar {
    Variable::Null.into()
}

fn element(data: &Rcvar, index: i32) -> Rcvar {
    let Some(elements) = data.as_array() else { return null() };
    let distance = index.unsigned_abs() as usize;
    let at = if index < 0 { elements.len().checked_sub(distance) } else { Some(distance) };
    at.and_then(|at| elements.get(at)).map_or_else(null, Arc::clone)
}

fn length(value: &Rcvar) -> usize {
    match &**value {
        Variable::String(text) => text.len(),
        Variable::Array(elements) => elements.len(),
        Variable::Object(fields) => fields.len(),
        _ => 0,
    }
}

fn compare_keys(a: &Rcvar, b: &Rcvar) -> Ordering {
    match (a.as_number(), b.as_number()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => a.as_string().cmp(&b.as_string()),
    }
}
