//! Counts the output tokens of an answer as a client gets them: one word is one token.

#![cfg(test)]

use serde_json::Value;

/// What has come of an answer.
#[derive(Debug)]
pub(super) struct Received {
    path: &'static str,
    is_stream: bool,
    unread: Vec<u8>,
    tokens: u64,
    bytes: usize,
}

impl Received {
    pub(super) const fn of(path: &'static str, is_stream: bool) -> Self {
        Self { path, is_stream, unread: Vec::new(), tokens: 0, bytes: 0 }
    }

    pub(super) fn take(&mut self, data: &[u8]) {
        self.bytes += data.len();
        if !self.is_stream {
            return;
        }
        self.unread.extend_from_slice(data);
        while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.unread.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&event);
            let data = text.lines().find_map(|line| line.strip_prefix("data: "));
            let value = data.and_then(|data| serde_json::from_str::<Value>(data).ok());
            self.tokens += value.map_or(0, |value| self.tokens_of(&value));
        }
    }

    pub(super) const fn tokens(&self) -> u64 {
        self.tokens
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn tokens_of(&self, event: &Value) -> u64 {
        let words = |text: &Value| text.as_str().map_or(0, |text| text.split_whitespace().count() as u64);
        match self.path {
            "/v1/messages" => words(&event["delta"]["text"]),
            "/v1/responses" if event["type"] == "response.output_text.delta" => words(&event["delta"]),
            "/v1/responses" => 0,
            _ => {
                let choices = event["choices"].as_array().map_or(&[][..], Vec::as_slice);
                choices.iter().map(|choice| words(&choice["delta"]["content"]) + words(&choice["text"])).sum()
            }
        }
    }
}
