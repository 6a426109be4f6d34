//! The literals section of a block (RFC 8878, 3.1.1.3.1).

use super::bits::Cursor;
use super::huffman::Tree;
use super::{BLOCK_BYTES_MAX, Corrupt};

/// The literals of the block at hand, and the tree that a later block may use again.
#[derive(Default)]
pub(super) struct Literals {
    bytes: Vec<u8>,
    tree: Option<Tree>,
}

/// Where the tree of compressed literals stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeFrom {
    Block,
    EarlierBlock,
}

impl Literals {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the section from the front of a block.
    pub(super) fn read(&mut self, block: &mut Cursor<'_>) -> Result<(), Corrupt> {
        self.bytes.clear();
        let first = block.rest().first().copied().ok_or(Corrupt)?;
        let size_format = first >> 2 & 0b11;
        match first & 0b11 {
            0 => {
                let count = plain_count(block, size_format)?;
                self.bytes.extend_from_slice(block.take(count)?);
                Ok(())
            }
            1 => {
                let count = plain_count(block, size_format)?;
                self.bytes.resize(count, block.byte()?);
                Ok(())
            }
            2 => self.compressed(block, size_format, TreeFrom::Block),
            _ => self.compressed(block, size_format, TreeFrom::EarlierBlock),
        }
    }

    fn compressed(
        &mut self,
        block: &mut Cursor<'_>,
        size_format: u8,
        tree_from: TreeFrom,
    ) -> Result<(), Corrupt> {
        let (header_bytes, width) = [(3, 10), (3, 10), (4, 14), (5, 18)][usize::from(size_format)];
        let header = block.little_endian(header_bytes)? >> 4;
        let mask = (1 << width) - 1;
        let count = (header & mask) as usize;
        let mut input = Cursor::new(block.take((header >> width & mask) as usize)?);
        if count > BLOCK_BYTES_MAX {
            return Err(Corrupt);
        }
        if tree_from == TreeFrom::Block {
            self.tree = Some(Tree::read(&mut input)?);
        }
        let tree = self.tree.as_ref().ok_or(Corrupt)?;
        if size_format == 0 {
            return tree.decode(input.rest(), count, &mut self.bytes);
        }
        let sizes = [input.little_endian(2)?, input.little_endian(2)?, input.little_endian(2)?];
        let each = count.div_ceil(4);
        for size in sizes {
            tree.decode(input.take(size as usize)?, each, &mut self.bytes)?;
        }
        let last = count.checked_sub(3 * each).ok_or(Corrupt)?;
        tree.decode(input.rest(), last, &mut self.bytes)
    }
}

/// How many literals a section that is not compressed holds.
fn plain_count(block: &mut Cursor<'_>, size_format: u8) -> Result<usize, Corrupt> {
    let (header_bytes, shift) = match size_format {
        1 => (2, 4),
        3 => (3, 4),
        _ => (1, 3),
    };
    let count = (block.little_endian(header_bytes)? >> shift) as usize;
    if count > BLOCK_BYTES_MAX {
        return Err(Corrupt);
    }
    Ok(count)
}
