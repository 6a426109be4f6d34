//! The top level of a body: each member is sent to its reader, in one pass.

use std::borrow::Cow;

use super::content::{self, Segments};
use super::error::RequestError;
use super::keys::Keys;
use super::layout::{Bound, BoundField, Control, Layout, is_control};
use super::prompts::{PROMPTS_LIMIT, prompts};
use super::scan::{Kind, Member, Scanned, Scanner};
use super::segment::Segment;
use super::values::{
    object, optional_bool, optional_count, optional_text, stream_options, thinking_budget, value_at,
};
use super::{CHOICES_LIMIT, IdentityFields, RequestFacts};
use crate::dialect::{Dialect, Endpoint};

/// The facts found so far.
pub(crate) struct Draft<'a> {
    endpoint: Endpoint,
    model: Option<Cow<'a, str>>,
    choices: Option<u64>,
    best_of: Option<(u64, usize)>,
    prompts: u64,
    has_input: bool,
    thinking_budget: Option<u64>,
    has_tools: bool,
    is_background: bool,
    has_unseen_input: bool,
    identity: IdentityFields<'a>,
    layout: Layout,
    /// Whether a member that is not an engine control has been seen.
    has_kept_member: bool,
    segments: Segments<'a>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(endpoint: Endpoint, body_bytes: usize) -> Self {
        Self {
            endpoint,
            model: None,
            choices: None,
            best_of: None,
            prompts: 0,
            has_input: false,
            thinking_budget: None,
            has_tools: false,
            is_background: false,
            has_unseen_input: false,
            identity: IdentityFields::default(),
            layout: Layout::new(endpoint, body_bytes),
            has_kept_member: false,
            segments: Segments::new(),
        }
    }

    /// Reads the whole body.
    pub(crate) fn read(mut self, scanner: &mut Scanner<'a>) -> Scanned<RequestFacts<'a>> {
        if scanner.kind()? != Kind::Object {
            scanner.skip()?;
            scanner.end()?;
            return Err(RequestError::NotAnObject);
        }
        scanner.open_object()?;
        self.layout.open = scanner.at();
        let mut keys = Keys::new();
        while let Some(member) = scanner.next_member(&mut keys)? {
            self.close_leading_control(member.at);
            if is_control(&member.name) {
                self.control(scanner, &member)?;
            } else {
                self.has_kept_member = true;
                self.member(scanner, &member).map_err(|error| error.under(&member.name))?;
            }
        }
        scanner.end()?;
        self.finish()
    }

    fn member(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        match &*member.name {
            "model" => self.model = optional_text(scanner)?.map(|text| text.decode()),
            "stream" => self.layout.is_streaming = optional_bool(scanner)?,
            "messages" if self.has_messages() => {
                self.has_input = true;
                content::messages(scanner, &mut self.segments)?;
            }
            "tools" | "functions" => {
                self.has_tools |= content::tools(scanner, &mut self.segments)? > 0;
            }
            "background" => self.is_background = optional_bool(scanner)?,
            name => {
                if let Some(field) = BoundField::from_name(name) {
                    return self.bound(scanner, field);
                }
                return match self.endpoint.dialect() {
                    Dialect::OpenAi => self.openai_member(scanner, member),
                    Dialect::Anthropic => self.anthropic_member(scanner, member),
                };
            }
        }
        Ok(())
    }

    fn openai_member(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        match (&*member.name, self.endpoint) {
            ("stream_options", Endpoint::ChatCompletions | Endpoint::Completions) => {
                self.layout.stream_options = stream_options(scanner)?;
            }
            // llama.cpp reads `n_cmpl` before `n`.
            ("n" | "n_cmpl", endpoint) if endpoint.generates() => {
                let at = value_at(scanner)?;
                let choices = optional_count(scanner)?;
                if choices.is_some_and(|n| !(1..=CHOICES_LIMIT).contains(&n)) {
                    return Err(RequestError::out_of_range(at, CHOICES_EXPECTED));
                }
                self.choices = self.choices.max(choices);
            }
            ("best_of", Endpoint::Completions) => {
                let at = value_at(scanner)?;
                self.best_of = optional_count(scanner)?.map(|best_of| (best_of, at));
            }
            ("prompt", Endpoint::Completions) | ("input", Endpoint::Embeddings) => {
                self.has_input = true;
                self.prompts += prompts(scanner, &mut self.segments)?;
            }
            ("prompt_embeds", Endpoint::Completions) => self.prompt_embeds(scanner)?,
            ("suffix", Endpoint::Completions) => content::value(scanner, &mut self.segments)?,
            ("input", Endpoint::Responses) => {
                content::input_items(scanner, &mut self.segments)?;
            }
            ("instructions", Endpoint::Responses) => {
                content::system(scanner, &mut self.segments)?;
            }
            ("prompt", Endpoint::Responses) => {
                self.has_unseen_input |= scanner.kind()? != Kind::Null;
                scanner.skip()?;
            }
            ("documents", Endpoint::ChatCompletions) => {
                let documents = scanner.skip_raw()?;
                self.segments.push(Segment::Json(documents))?;
            }
            _ => return self.identity_member(scanner, member),
        }
        Ok(())
    }

    fn anthropic_member(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        match &*member.name {
            "system" => content::system(scanner, &mut self.segments),
            "thinking" => {
                self.thinking_budget = thinking_budget(scanner)?;
                Ok(())
            }
            _ => self.identity_member(scanner, member),
        }
    }

    fn identity_member(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        let identity = &mut self.identity;
        let field = match &*member.name {
            "user" => &mut identity.user,
            "safety_identifier" => &mut identity.safety_identifier,
            "prompt_cache_key" => &mut identity.prompt_cache_key,
            "session_id" => &mut identity.session_id,
            "previous_response_id" => &mut identity.previous_response_id,
            "conversation" => {
                if scanner.kind()? == Kind::Text {
                    identity.conversation = Some(scanner.string()?.decode());
                } else {
                    object(scanner, ["id"], [&mut identity.conversation])?;
                }
                self.has_unseen_input |= self.identity.conversation.is_some();
                return Ok(());
            }
            "metadata" => {
                let fields = [&mut identity.metadata_user_id, &mut identity.metadata_session_id];
                return object(scanner, ["user_id", "session_id"], fields);
            }
            "litellm_metadata" => return object(scanner, ["user"], [&mut identity.litellm_user]),
            _ => return scanner.skip().map(drop),
        };
        *field = optional_text(scanner)?.map(|text| text.decode());
        self.has_unseen_input |= self.identity.previous_response_id.is_some();
        Ok(())
    }

    fn bound(&mut self, scanner: &mut Scanner<'a>, field: BoundField) -> Scanned<()> {
        if BoundField::obeyed(self.endpoint).is_empty() {
            return scanner.skip().map(drop);
        }
        let at = value_at(scanner)?;
        let tokens = optional_count(scanner)?;
        if tokens == Some(0) && self.endpoint != Endpoint::Messages {
            return Err(RequestError::out_of_range(at, "an integer of at least 1"));
        }
        let value = at..scanner.at();
        self.layout.bounds[field as usize] = Some(Bound { value, tokens });
        Ok(())
    }

    /// Each is a prompt of its own, given as numbers that only the engine reads.
    fn prompt_embeds(&mut self, scanner: &mut Scanner<'a>) -> Scanned<()> {
        let at = value_at(scanner)?;
        if scanner.kind()? != Kind::Array {
            let one = u64::from(scanner.kind()? != Kind::Null);
            self.prompts += one;
            return scanner.skip().map(drop);
        }
        scanner.open_array()?;
        while scanner.next_element()? {
            scanner.skip()?;
            self.prompts += 1;
        }
        if self.prompts > 2 * PROMPTS_LIMIT {
            return Err(RequestError::out_of_range(at, "a shorter array"));
        }
        Ok(())
    }

    fn control(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        let value = scanner.skip().map_err(|error| error.under(&member.name))?;
        let leads = !self.has_kept_member;
        let start = if leads { member.at } else { member.comma_at };
        self.layout.controls.push(Control {
            removal: start..value.end,
            value,
            is_priority: member.name == "priority",
            leads,
        });
        Ok(())
    }

    /// A control that stands before every other member is cut up to the member after it.
    fn close_leading_control(&mut self, next_at: usize) {
        if let Some(control) = self.layout.controls.last_mut()
            && control.leads
            && !self.has_kept_member
        {
            control.removal.end = next_at;
        }
    }

    const fn has_messages(&self) -> bool {
        match self.endpoint {
            Endpoint::ChatCompletions | Endpoint::Messages | Endpoint::CountTokens | Endpoint::Embeddings => {
                true
            }
            Endpoint::Completions | Endpoint::Responses | Endpoint::Models => false,
        }
    }

    fn finish(self) -> Scanned<RequestFacts<'a>> {
        let choices = self.generated_choices()?;
        let missing = |param| Err(RequestError::Missing { param });
        let model = match self.model {
            Some(model) if !model.is_empty() => model,
            Some(_) | None => return missing("model"),
        };
        match (self.endpoint, self.has_input) {
            (Endpoint::ChatCompletions | Endpoint::Messages | Endpoint::CountTokens, false) => {
                return missing("messages");
            }
            (Endpoint::Embeddings, false) => return missing("input"),
            (Endpoint::Messages, true) if !self.layout.has_bound(BoundField::MaxTokens) => {
                return missing("max_tokens");
            }
            _ => {}
        }
        Ok(RequestFacts {
            endpoint: self.endpoint,
            model,
            is_streaming: self.layout.is_streaming,
            asks_usage: self.layout.stream_options.asks_usage(),
            output_bound: self.layout.largest_bound(),
            choices,
            prompts: self.prompts.max(1),
            thinking_budget: self.thinking_budget,
            has_tools: self.has_tools,
            is_background: self.is_background,
            has_unseen_input: self.has_unseen_input,
            identity: self.identity,
            layout: self.layout,
            segments: self.segments.into_list(),
        })
    }

    fn generated_choices(&self) -> Scanned<u64> {
        let choices = self.choices.unwrap_or(1);
        match self.best_of {
            None => Ok(choices),
            Some((best_of, _)) if (choices..=CHOICES_LIMIT).contains(&best_of) => Ok(best_of),
            Some((_, at)) => {
                Err(RequestError::out_of_range(at, "an integer from `n` to 128").under("best_of"))
            }
        }
    }
}

const CHOICES_EXPECTED: &str = "an integer from 1 to 128";

const _: () = assert!(CHOICES_LIMIT == 128, "the texts above name the limit");
