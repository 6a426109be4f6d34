//! Exact token counts with the vocabulary of a model.
//!
//! [`Vocabulary`] counts a text, [`Memo`] remembers counts of texts that come again, and
//! [`count_input`] and [`estimate_input`] count a whole request. Counting never fails: what an engine
//! cannot count is estimated, and that is counted too.

#[cfg(feature = "tokenizers")]
mod file;
mod input;
mod memo;
mod open;
#[cfg(feature = "tokenizers")]
mod sentencepiece;
#[cfg(feature = "tokenizers")]
mod tekken;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

pub use input::{ChatOverhead, InputEstimate, InputRules, count_input, estimate_input, uncounted_bytes};
pub use memo::{Memo, MemoKey};
pub use open::{FILE_BYTES_MAX, VocabularyError};

use crate::estimate::Shape;

/// The vocabulary of a model: it says how many tokens a text has.
///
/// Nothing is loaded before the first exact count with a vocabulary that is built in. Share it with
/// an `Arc`; counts from several threads do not wait for each other.
///
/// Markers such as `<|endoftext|>` count as the plain text that they are in a user's message.
///
/// # Examples
///
/// ```
/// use fairlane_wire::count::Vocabulary;
///
/// let vocabulary = Vocabulary::open("o200k")?;
/// assert_eq!(vocabulary.count("Hello, world!"), 4);
/// assert_eq!(vocabulary.count_up_to("Hello, world!", 3), None);
/// # Ok::<(), fairlane_wire::count::VocabularyError>(())
/// ```
pub struct Vocabulary {
    engine: Engine,
    fallbacks: AtomicU64,
}

enum Engine {
    O200k,
    Cl100k,
    Words,
    #[cfg(feature = "tokenizers")]
    File(Box<file::FileEngine>),
}

impl Vocabulary {
    /// OpenAI's vocabulary since GPT-4o; 81 MB of memory and some 40 ms at the first count.
    #[must_use]
    pub const fn o200k() -> Self {
        Self::new(Engine::O200k)
    }

    /// OpenAI's vocabulary of GPT-3.5 and GPT-4.
    #[must_use]
    pub const fn cl100k() -> Self {
        Self::new(Engine::Cl100k)
    }

    /// One token for each word between blanks: for tests and demos with the simulated engine, which
    /// counts the same way.
    #[must_use]
    pub const fn words() -> Self {
        Self::new(Engine::Words)
    }

    /// The vocabulary called `o200k`, `cl100k` or `words`, else the file at that path: Hugging Face's
    /// `tokenizer.json`, Mistral's `tekken.json`, or a SentencePiece model. A file is loaded at once.
    ///
    /// # Errors
    ///
    /// A [`VocabularyError`] if there is no such vocabulary or file, if the file is too large or not
    /// a vocabulary, or if the program was built without the feature `tokenizers`.
    pub fn open(name_or_path: &str) -> Result<Self, VocabularyError> {
        open::engine(name_or_path).map(Self::new)
    }

    const fn new(engine: Engine) -> Self {
        Self { engine, fallbacks: AtomicU64::new(0) }
    }

    /// What it is called: `o200k`, `cl100k`, `words`, or the path of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.engine {
            Engine::O200k => "o200k",
            Engine::Cl100k => "cl100k",
            Engine::Words => "words",
            #[cfg(feature = "tokenizers")]
            Engine::File(file) => file.path(),
        }
    }

    /// What a chat template adds around the texts of a request, see [`ChatOverhead`].
    #[must_use]
    pub const fn chat_overhead(&self) -> ChatOverhead {
        match self.engine {
            Engine::Words => ChatOverhead::NONE,
            Engine::O200k | Engine::Cl100k => ChatOverhead::OPENAI,
            #[cfg(feature = "tokenizers")]
            Engine::File(_) => ChatOverhead::OPENAI,
        }
    }

    /// How many tokens `text` has; the upper end of the estimate if the engine cannot say.
    #[must_use]
    pub fn count(&self, text: &str) -> u64 {
        self.guarded(text, || match &self.engine {
            Engine::O200k => Some(bpe_openai::o200k_base().count(text) as u64),
            Engine::Cl100k => Some(bpe_openai::cl100k_base().count(text) as u64),
            Engine::Words => Some(words(text).count() as u64),
            #[cfg(feature = "tokenizers")]
            Engine::File(file) => file.count(text),
        })
    }

    /// The count of `text` if it is at most `limit`, else `None`. The vocabularies built in stop
    /// soon after the limit; one from a file reads the whole text.
    #[must_use]
    pub fn count_up_to(&self, text: &str, limit: u64) -> Option<u64> {
        let limit_tokens = usize::try_from(limit).unwrap_or(usize::MAX);
        let over = limit.saturating_add(1);
        let count = self.guarded(text, || match &self.engine {
            Engine::O200k => Some(until(bpe_openai::o200k_base(), text, limit_tokens, over)),
            Engine::Cl100k => Some(until(bpe_openai::cl100k_base(), text, limit_tokens, over)),
            Engine::Words => Some(words(text).take(limit_tokens.saturating_add(1)).count() as u64),
            #[cfg(feature = "tokenizers")]
            Engine::File(file) => file.count(text),
        });
        (count <= limit).then_some(count)
    }

    /// How many texts were estimated because the engine could not count them.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// An engine's panic must not end a request: it is counted as a failure to count.
    fn guarded(&self, text: &str, count: impl FnOnce() -> Option<u64>) -> u64 {
        match catch_unwind(AssertUnwindSafe(count)) {
            Ok(Some(tokens)) => tokens,
            Ok(None) | Err(_) => {
                self.fallbacks.fetch_add(1, Ordering::Relaxed);
                let mut shape = Shape::default();
                shape.add(text);
                shape.interval().high
            }
        }
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Vocabulary").field(&self.name()).finish()
    }
}

/// The words of the vocabulary [`Vocabulary::words`].
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

fn until(tokenizer: &bpe_openai::Tokenizer, text: &str, limit: usize, over: u64) -> u64 {
    let normalized = tokenizer.normalize(text);
    tokenizer.count_till_limit(&normalized, limit).map_or(over, |count| count as u64)
}
