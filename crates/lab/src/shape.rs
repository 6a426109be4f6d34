//! What one simulated engine is made of: the prices of a step, and its room.

use fairlane_core::units::{Micros, Tokens};

/// The size and speed of one replica: a step lasts `step_fixed + step_per_decoding * n + step_per_prompt_token * p`
/// for `n` sequences that make a token and `p` prompt tokens that are read in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What every step costs, whatever it does.
    pub step_fixed: Micros,
    /// What each sequence that makes a token adds to the step.
    pub step_per_decoding: Micros,
    /// What each prompt token that is read adds to the step.
    pub step_per_prompt_token: Micros,
    /// Sequences that run at the same time, at most.
    pub slots: usize,
    /// Prompt tokens read in one step, at most.
    pub prefill_chunk: Tokens,
    /// Tokens that the key-value cache holds.
    pub kv: Tokens,
}

impl Shape {
    /// The replica of the reference scenario.
    pub const REFERENCE: Self = Self {
        step_fixed: Micros(8_000),
        step_per_decoding: Micros(80),
        step_per_prompt_token: Micros(54),
        slots: 48,
        prefill_chunk: Tokens(1_024),
        kv: Tokens(480_000),
    };

    /// How long a step lasts that makes `decoding` tokens and reads `prompt` prompt tokens.
    #[must_use]
    pub const fn step(&self, decoding: u64, prompt: u64) -> Micros {
        Micros(
            self.step_fixed.0 + self.step_per_decoding.0 * decoding + self.step_per_prompt_token.0 * prompt,
        )
    }

    /// Replica time that `input` and `output` tokens take in a full batch: a = `step_per_prompt_token` for an input token,
    /// b = `step_per_decoding` + `step_fixed` / `slots` for an output token, which shares the fixed cost with a full batch.
    #[must_use]
    pub const fn work(&self, input: Tokens, output: Tokens) -> Micros {
        let shared = self.step_fixed.0 * output.0 / self.slots as u64;
        Micros(self.step_per_prompt_token.0 * input.0 + self.step_per_decoding.0 * output.0 + shared)
    }
}

#[cfg(test)]
mod tests {
    use super::{Micros, Shape, Tokens};

    #[test]
    fn a_full_batch_prices_an_output_token_at_4_57_input_tokens() {
        let input = Shape::REFERENCE.work(Tokens(100_000), Tokens(0));
        let output = Shape::REFERENCE.work(Tokens(0), Tokens(100_000));
        assert_eq!(output.0 * 100 / input.0, 456);
        assert_eq!(Shape::REFERENCE.work(Tokens(900), Tokens(250)), Micros(110_266));
    }

    #[test]
    fn a_step_adds_its_three_prices() {
        assert_eq!(Shape::REFERENCE.step(10, 1_000), Micros(8_000 + 800 + 54_000));
    }
}
