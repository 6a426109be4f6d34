//! What an image costs in tokens, by the rules that vendors publish: never by its bytes.

mod size;

use crate::request::{Detail, Image, ImageSource};
use size::Size;

/// How a model charges images.
///
/// # Examples
///
/// ```
/// use fairlane_wire::images::ImageRule;
/// use fairlane_wire::request::{Detail, Image, ImageSource};
///
/// let image = Image { source: ImageSource::Stored, detail: Detail::Low };
/// assert_eq!(ImageRule::GPT_4O.tokens(&image), 85);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    /// The same for every image.
    Fixed {
        /// Tokens for an image.
        tokens: u64,
        /// Tokens for one with `detail: low`.
        low_tokens: u64,
    },
    /// The image is shrunk into 2,048 × 2,048, then until its short side has 768 pixels, and cut into
    /// tiles of 512 × 512. With `detail: low` it costs `base` alone.
    Tiles {
        /// Tokens for the image itself.
        base: u64,
        /// Tokens for each tile.
        per_tile: u64,
    },
    /// The image is cut into patches of 32 × 32 pixels, shrunk before if they would be too many.
    Patches {
        /// The most patches of one image.
        patches_max: u64,
        /// Tokens for a patch, in thousandths.
        millitokens_per_patch: u64,
    },
}

impl ImageRule {
    /// GPT-4o, GPT-4.1.
    pub const GPT_4O: Self = Self::Tiles { base: 85, per_tile: 170 };
    /// GPT-4o mini.
    pub const GPT_4O_MINI: Self = Self::Tiles { base: 2_833, per_tile: 5_667 };
    /// GPT-5.
    pub const GPT_5: Self = Self::Tiles { base: 70, per_tile: 140 };
    /// o1, o3.
    pub const O1: Self = Self::Tiles { base: 75, per_tile: 150 };
    /// GPT-4.1 mini.
    pub const GPT_4_1_MINI: Self = Self::Patches { patches_max: 1_536, millitokens_per_patch: 1_620 };
    /// Other models that charge by patches.
    pub const PATCHES: Self = Self::Patches { patches_max: 1_536, millitokens_per_patch: 1_200 };
    /// For models whose rule is not known: what GPT-4o charges for six tiles.
    pub const DEFAULT: Self = Self::Fixed { tokens: 1_105, low_tokens: 85 };

    /// The tokens of one image. Its size is read from the beginning of its data; where that cannot
    /// be, because it lies behind an address or in a form not known, six tiles or the most patches
    /// are charged.
    #[must_use]
    pub fn tokens(&self, image: &Image<'_>) -> u64 {
        let is_low = image.detail == Detail::Low;
        match *self {
            Self::Fixed { low_tokens, .. } if is_low => low_tokens,
            Self::Fixed { tokens, .. } => tokens,
            Self::Tiles { base, .. } if is_low => base,
            Self::Tiles { base, per_tile } => {
                let tiles = size_of(image).map_or(TILES_UNKNOWN, tiles);
                base.saturating_add(per_tile.saturating_mul(tiles))
            }
            Self::Patches { patches_max, millitokens_per_patch } => {
                let patches = size_of(image).map_or(patches_max, patches).min(patches_max);
                patches.saturating_mul(millitokens_per_patch).div_ceil(1_000)
            }
        }
    }
}

impl Default for ImageRule {
    fn default() -> Self {
        Self::DEFAULT
    }
}

fn size_of(image: &Image<'_>) -> Option<Size> {
    match image.source {
        ImageSource::Base64(data) => size::read(data),
        ImageSource::Url(_) | ImageSource::Stored => None,
    }
}

fn tiles(size: Size) -> u64 {
    let size = size.shrunk_to(size.width.max(size.height), 2_048);
    let size = size.shrunk_to(size.width.min(size.height), 768);
    size.width.div_ceil(512) * size.height.div_ceil(512)
}

fn patches(size: Size) -> u64 {
    size.width.div_ceil(32) * size.height.div_ceil(32)
}

/// A photograph of 3 : 2 in full detail.
const TILES_UNKNOWN: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u64, height: u64) -> Size {
        Size { width, height }
    }

    #[test]
    fn tiles_are_counted_after_both_shrinks() {
        let expected = [
            (size(1, 1), 1),
            (size(512, 512), 1),
            (size(513, 512), 2),
            (size(1_024, 1_024), 4),
            (size(2_048, 4_096), 6),
            (size(4_096, 8_192), 6),
            (size(65_535, 1), 4),
        ];
        for (size, count) in expected {
            assert_eq!(tiles(size), count, "{size:?}");
        }
    }

    #[test]
    fn patches_stop_at_their_most() {
        assert_eq!(patches(size(1_024, 1_024)), 1_024);
        let image = Image { source: ImageSource::Stored, detail: Detail::High };
        assert_eq!(ImageRule::GPT_4_1_MINI.tokens(&image), 2_489);
    }
}
