//! Reads single facts out of a JSON body, with an error that names the field.

use serde_json::{Map, Value};

use super::problem::Problem;

/// A JSON object and the typed reading of its fields; an absent field and `null` are the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    pub(super) fn of(body: &'a Value) -> Result<Self, Problem> {
        match body {
            Value::Object(fields) => Ok(Self(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Problem::bad_request("the body must be a JSON object"))
            }
        }
    }

    pub(super) fn value(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn required(self, name: &str) -> Result<&'a Value, Problem> {
        self.value(name).ok_or_else(|| Problem::bad_request(format!("{name}: field required")))
    }

    pub(super) fn count(self, name: &str) -> Result<Option<u64>, Problem> {
        self.typed(name, "an integer of 0 or more", Value::as_u64)
    }

    pub(super) fn integer(self, name: &str) -> Result<Option<i64>, Problem> {
        self.typed(name, "an integer", Value::as_i64)
    }

    pub(super) fn flag(self, name: &str) -> Result<bool, Problem> {
        Ok(self.typed(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, Problem> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(super) fn list(self, name: &str) -> Result<&'a [Value], Problem> {
        Ok(self.typed(name, "an array", Value::as_array)?.map_or(&[], Vec::as_slice))
    }

    /// The fields of an object in a field; no fields if it is absent.
    pub(super) fn object(self, name: &str) -> Result<Option<Self>, Problem> {
        Ok(self.typed(name, "an object", Value::as_object)?.map(Self))
    }

    /// Names of the fields, at most so many.
    pub(super) fn names(self, at_most: usize) -> Vec<String> {
        self.0.keys().take(at_most).cloned().collect()
    }

    fn typed<T>(
        self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        match read(value) {
            Some(fact) => Ok(Some(fact)),
            None => Err(Problem::bad_request(format!("{name}: must be {wanted}"))),
        }
    }
}
