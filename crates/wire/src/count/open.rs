//! Which vocabulary a name or a path means, and what is told if it means none.

use std::fmt;
use std::io;

use super::Engine;

/// A larger vocabulary file is refused. The largest in public use have 35 MB.
pub const FILE_BYTES_MAX: u64 = 128 << 20;

pub(super) fn engine(name_or_path: &str) -> Result<Engine, VocabularyError> {
    match name_or_path {
        "o200k" | "o200k_base" => Ok(Engine::O200k),
        "cl100k" | "cl100k_base" => Ok(Engine::Cl100k),
        "words" => Ok(Engine::Words),
        path if !path.contains(['/', '\\', '.']) => {
            Err(VocabularyError::UnknownName { name: path.to_owned() })
        }
        path => from_file(path),
    }
}

#[cfg(feature = "tokenizers")]
fn from_file(path: &str) -> Result<Engine, VocabularyError> {
    super::file::FileEngine::open(path).map(|file| Engine::File(Box::new(file)))
}

#[cfg(not(feature = "tokenizers"))]
fn from_file(path: &str) -> Result<Engine, VocabularyError> {
    Err(VocabularyError::FeatureOff { path: path.to_owned() })
}

/// Why a vocabulary cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum VocabularyError {
    /// Neither a vocabulary that is built in nor a path.
    UnknownName {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than [`FILE_BYTES_MAX`].
    TooLarge {
        /// Its path.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// The file is not a vocabulary, or one that cannot be used.
    NotAVocabulary {
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Files need the feature `tokenizers`, which this program was built without.
    FeatureOff {
        /// The path asked for.
        path: String,
    },
}

impl fmt::Display for VocabularyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName { name } => write!(
                formatter,
                "unknown vocabulary `{name}`: use o200k, cl100k or words, or the path of a tokenizer.json, \
                 a tekken.json or a SentencePiece model (a path has a `/` or a `.`)"
            ),
            Self::Unreadable { path, source } => write!(
                formatter,
                "cannot read the vocabulary file {path}: {source}; check the path and that the gateway may read it"
            ),
            Self::TooLarge { path, bytes } => write!(
                formatter,
                "the vocabulary file {path} has {bytes} bytes, more than the {FILE_BYTES_MAX} allowed; \
                 name the vocabulary alone, not a model's weights"
            ),
            Self::NotAVocabulary { path, why } => write!(
                formatter,
                "{path} cannot be used as a vocabulary: {why}; \
                 give a tokenizer.json, a tekken.json or a SentencePiece model, or use o200k with mode auto"
            ),
            Self::FeatureOff { path } => write!(
                formatter,
                "the vocabulary file {path} needs the feature `tokenizers`, which this program was built without; \
                 build with --features tokenizers, or use o200k or cl100k"
            ),
        }
    }
}

impl std::error::Error for VocabularyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            Self::UnknownName { .. }
            | Self::TooLarge { .. }
            | Self::NotAVocabulary { .. }
            | Self::FeatureOff { .. } => None,
        }
    }
}
