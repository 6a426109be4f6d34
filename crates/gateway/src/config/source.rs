//! Reading a configuration: the main file, the files it includes and the file of keys, each within bounds.

use std::fs::File;
use std::io::Read;
use std::path::{Path as FilePath, PathBuf};

use serde::de::DeserializeOwned;

use super::path::Path;
use super::places::{AllSecret, Places, lines};
use super::problem::{ConfigError, Problem, SourceFile};
use super::raw::{BackendEntry, Document, KeysFile, Models, Part, Pool};
use super::scalars::Name;

/// A configuration as it was read; it can be resolved again when backends list other models.
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) document: Document,
    /// Included parts with the place of their file in `files`.
    pub(crate) parts: Vec<(usize, Part)>,
    pub(crate) keys: Option<(usize, KeysFile)>,
    pub(crate) folder: PathBuf,
    /// Where in its file the configuration is written, if it is a part of another document.
    pub(crate) root: Path,
}

impl Source {
    /// Reads `path` with everything it includes.
    ///
    /// # Errors
    /// A file cannot be read, is too large, is not YAML, or has a key or a value that no option takes.
    pub fn read(path: &FilePath) -> Result<Self, ConfigError> {
        let mut reader = Reader::default();
        let text = reader.open(path).map_err(|message| Problem::in_file(path, message))?;
        let folder = path.parent().map(FilePath::to_path_buf).unwrap_or_default();
        let (file, document) = reader.parse::<Document>(path, text, AllSecret::No)?;
        let mut source = Self {
            files: Vec::new(),
            document,
            parts: Vec::new(),
            keys: None,
            folder: folder.clone(),
            root: Path::default(),
        };
        let includes = source.document.include.clone();
        reader.include(file, &folder, &includes, &mut source.parts)?;
        if let Some(keys_file) = source.document.keys_file.clone() {
            let path = folder.join(keys_file);
            let text =
                reader.open(&path).map_err(|message| reader.at(file, &Path::of("keys_file"), message))?;
            source.keys = Some(reader.parse::<KeysFile>(&path, text, AllSecret::Yes)?);
        }
        source.files = reader.files;
        Ok(source)
    }

    /// Reads `text` as a main file called `name`. It can include files relative to the working directory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn from_text(name: &str, text: &str) -> Result<Self, ConfigError> {
        let mut reader = Reader::default();
        let (file, document) =
            reader.parse::<Document>(FilePath::new(name), text.to_owned(), AllSecret::No)?;
        let mut parts = Vec::new();
        reader.include(file, FilePath::new(""), &document.include, &mut parts)?;
        Ok(Self {
            files: reader.files,
            document,
            parts,
            keys: None,
            folder: PathBuf::new(),
            root: Path::default(),
        })
    }

    /// The configuration of `serve --backend URL` with no file: one pool of these backends with whatever models they list, one open
    /// tenant, no limits.
    #[must_use]
    pub fn open(urls: &[String]) -> Self {
        let backends = urls
            .iter()
            .map(|url| {
                BackendEntry(super::raw::Backend { url: Some(url.clone()), ..super::raw::Backend::default() })
            })
            .collect();
        let pool = Pool {
            name: Name("main".to_owned()),
            models: Models::Discovered,
            engine: None,
            backends,
            slots: None,
            kv_tokens: None,
            work: None,
            tokenizer: None,
            images: None,
            limits: None,
            passthrough: Vec::new(),
            health: None,
            priority: None,
            stickiness: None,
        };
        let document = Document { pools: vec![pool], ..Document::default() };
        Self {
            files: Vec::new(),
            document,
            parts: Vec::new(),
            keys: None,
            folder: PathBuf::new(),
            root: Path::default(),
        }
    }

    /// Every file that was read, to be watched for changes.
    pub fn files(&self) -> impl Iterator<Item = &FilePath> {
        self.files.iter().map(|file| file.name.as_path())
    }
}

/// Reads one file that includes no other, as strictly as a configuration.
pub(super) fn read_one<T: DeserializeOwned + Default>(
    path: &FilePath,
) -> Result<(SourceFile, T), ConfigError> {
    let mut reader = Reader::default();
    let text = reader.open(path).map_err(|message| Problem::in_file(path, message))?;
    let (_, parsed) = reader.parse::<T>(path, text, AllSecret::No)?;
    Ok((reader.files.remove(0), parsed))
}

#[derive(Default)]
struct Reader {
    files: Vec<SourceFile>,
    opened: Vec<PathBuf>,
    bytes: u64,
}

impl Reader {
    fn include(
        &mut self,
        from: usize,
        folder: &FilePath,
        names: &[String],
        parts: &mut Vec<(usize, Part)>,
    ) -> Result<(), ConfigError> {
        for (index, name) in names.iter().enumerate() {
            let path = folder.join(name);
            let at = Path::of("include").index(index);
            let text = self.open(&path).map_err(|message| self.at(from, &at, message))?;
            let (file, part) = self.parse::<Part>(&path, text, AllSecret::No)?;
            let includes = part.include.clone();
            parts.push((file, part));
            let below = path.parent().map(FilePath::to_path_buf).unwrap_or_default();
            // Each file is read once, so that this ends with the bound on files.
            self.include(file, &below, &includes, parts)?;
        }
        Ok(())
    }

    fn open(&mut self, path: &FilePath) -> Result<String, String> {
        let shown = path.display();
        if self.files.len() >= FILES_MAX {
            return Err(format!("{shown} would be more than {FILES_MAX} files: put several together"));
        }
        let real = path.canonicalize().map_err(|error| format!("cannot read {shown}: {error}"))?;
        if self.opened.contains(&real) {
            return Err(format!("{shown} is read already: name each file once"));
        }
        self.opened.push(real);
        let file = File::open(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot read {shown}: {error}"))?;
        self.bytes += bytes.len() as u64;
        if bytes.len() as u64 > FILE_BYTES_MAX || self.bytes > ALL_BYTES_MAX {
            return Err(format!("{shown} is too large: a file has at most 8 MiB, all files together 32 MiB"));
        }
        String::from_utf8(bytes).map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            format!("{shown} is not UTF-8 in line {line}")
        })
    }

    fn parse<T: DeserializeOwned + Default>(
        &mut self,
        path: &FilePath,
        text: String,
        all_secret: AllSecret,
    ) -> Result<(usize, T), ConfigError> {
        let file = SourceFile { name: path.to_path_buf(), text, all_secret };
        let parsed = parse::<T>(&file)?;
        self.files.push(file);
        Ok((self.files.len() - 1, parsed))
    }

    fn at(&self, file: usize, path: &Path, message: String) -> Problem {
        let file = &self.files[file];
        file.value_problem(&Places::of(&file.text), path, message)
    }
}

fn parse<T: DeserializeOwned + Default>(file: &SourceFile) -> Result<T, ConfigError> {
    if file.text.len() as u64 > FILE_BYTES_MAX {
        return Err(Problem::in_file(&file.name, "the file has more than 8 MiB".to_owned()).into());
    }
    if lines(&file.text).all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(T::default());
    }
    let value = serde_saphyr::from_str_with_options(&file.text, options())
        .map_err(|error| file.yaml_problem(&error))?;
    let places = Places::of(&file.text);
    // An empty value would read as an absent one, and an absent limit is no limit.
    if let Some(path) = places.first_null() {
        return Err(file
            .problem(&places, &path, format!("{path} has no value: give it one or remove the key"))
            .into());
    }
    Ok(value)
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 2_000_000,
            max_nodes: 1_000_000,
            max_depth: 32,
            max_documents: 1,
            max_aliases: 10_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: 4 << 20,
            max_total_scalar_bytes: 8 << 20,
            max_total_comment_bytes: 8 << 20,
            max_merge_keys: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 200_000,
            max_replay_stack_depth: 16,
        },
    }
}

impl Problem {
    pub(crate) fn in_file(path: &FilePath, message: String) -> Self {
        Self { file: Some(path.to_path_buf()), place: None, message, snippet: None }
    }
}

const FILES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 8 << 20;
const ALL_BYTES_MAX: u64 = 32 << 20;
