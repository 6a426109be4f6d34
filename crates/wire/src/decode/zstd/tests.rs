//! Tests: The zstd decoder beside the reference.

use super::*;

const SMALL: usize = 1 << 20;

fn frame_of_blocks(blocks: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58];
    frame.extend_from_slice(blocks);
    frame
}

fn header(kind: u32, size: u32, is_last: u32) -> [u8; 3] {
    let [a, b, c, _] = (is_last | kind << 1 | size << 3).to_le_bytes();
    [a, b, c]
}

#[test]
fn raw_and_repeated_blocks_are_decoded() {
    let mut blocks = header(0, 3, 0).to_vec();
    blocks.extend_from_slice(b"abc");
    blocks.extend_from_slice(&header(1, 4, 1));
    blocks.push(b'x');
    assert_eq!(decode(&frame_of_blocks(&blocks), SMALL), Ok(b"abcxxxx".to_vec()));
}

#[test]
fn frames_follow_each_other_and_skippable_ones_are_skipped() {
    let mut one = header(0, 1, 1).to_vec();
    one.push(b'a');
    let mut body = frame_of_blocks(&one);
    body.extend_from_slice(&[0x53, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9]);
    body.extend_from_slice(&frame_of_blocks(&one));
    assert_eq!(decode(&body, SMALL), Ok(b"aa".to_vec()));
}

#[test]
fn a_told_size_over_the_limit_is_refused_before_decoding() {
    let mut body = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0x58];
    body.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    let limit_bytes = SMALL;
    assert_eq!(decode(&body, SMALL), Err(DecodeError::TooLarge { limit_bytes }));
}

/// A block of `count` steps, each one literal and a copy of 65,538 bytes from one byte back.
fn block_of_long_copies(count: u8) -> Vec<u8> {
    let mut block = vec![count << 3];
    block.extend(std::iter::repeat_n(b'a', usize::from(count)));
    let single_symbol_tables = 0b0101_0100;
    let (one_literal, newest_offset, copy_with_15_more_bits) = (1, 0, 51);
    block.extend_from_slice(&[count, single_symbol_tables]);
    block.extend_from_slice(&[one_literal, newest_offset, copy_with_15_more_bits]);
    let bits = usize::from(count) * 15;
    block.extend(std::iter::repeat_n(0xFF, bits / 8));
    block.push(((1_u32 << (bits % 8 + 1)) - 1) as u8);
    block
}

#[test]
fn a_block_cannot_produce_more_than_the_format_allows() {
    let decoded = |count| {
        let block = block_of_long_copies(count);
        let mut blocks = header(2, block.len() as u32, 1).to_vec();
        blocks.extend_from_slice(&block);
        decode(&frame_of_blocks(&blocks), usize::MAX).map(|decoded| decoded.len())
    };
    assert_eq!(decoded(1), Ok(65_539));
    let malformed = DecodeError::Malformed { encoding: "zstd" };
    assert_eq!(decoded(2), Err(malformed));
    assert_eq!(decoded(31), Err(malformed));
}

#[test]
fn the_limit_holds_between_blocks_and_between_frames() {
    let mut blocks = header(1, 100, 0).to_vec();
    blocks.push(b'x');
    blocks.extend_from_slice(&header(1, 100, 1));
    blocks.push(b'y');
    let one = frame_of_blocks(&blocks);
    let two = [one.clone(), one.clone()].concat();
    assert_eq!(decode(&one, 200).map(|decoded| decoded.len()), Ok(200));
    assert_eq!(decode(&one, 199), Err(DecodeError::TooLarge { limit_bytes: 199 }));
    assert_eq!(decode(&two, 399), Err(DecodeError::TooLarge { limit_bytes: 399 }));
    assert_eq!(decode(&two, 400).map(|decoded| decoded.capacity()), Ok(400));
}

#[test]
fn an_unknown_magic_number_a_dictionary_and_an_empty_body_are_malformed() {
    for body in [
        &b""[..],
        b"{\"model\":1}",
        &[0x28, 0xB5, 0x2F, 0xFD, 0x01, 0x58, 7, 1, 0, 0],
        &[0x28, 0xB5, 0x2F, 0xFD, 0x08, 0x58, 1, 0, 0],
    ] {
        let malformed = DecodeError::Malformed { encoding: "zstd" };
        assert_eq!(decode(body, SMALL), Err(malformed), "{body:?}");
    }
}
