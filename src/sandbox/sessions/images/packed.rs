//! The form of a stored image: its parts, each after its length, compressed. An empty one ends it.

use std::io::{Cursor, Read, Write};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

use sekisho_guest_protocol::{DamagedImageError, MAX_PART_BYTES};

/// All parts together: more than a memory of 32 bits, and files, ever have. Few bytes can unpack to more.
const MAX_UNPACKED_BYTES: u64 = 8 << 30;

/// Bytes before each part.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Packs the parts of an image in their order.
#[derive(Debug)]
pub(crate) struct Packer {
    encoder: DeflateEncoder<Vec<u8>>,
    max_bytes: usize,
    /// The bytes that further parts may have.
    unpacked_left: u64,
}

/// The image has more bytes than one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the image is too large")]
pub(crate) struct TooLargeError;

/// Reads the parts of an image in their order.
#[derive(Debug)]
pub(crate) struct Unpacker {
    decoder: DeflateDecoder<Cursor<Vec<u8>>>,
    /// The bytes that further parts may have.
    unpacked_left: u64,
}

impl Packer {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        Self { encoder, max_bytes, unpacked_left: MAX_UNPACKED_BYTES }
    }

    /// Takes a millisecond for each of some hundred kilobytes.
    pub(crate) fn add(&mut self, part: &[u8]) -> Result<(), TooLargeError> {
        if part.len() > MAX_PART_BYTES {
            return Err(TooLargeError);
        }
        let length = u32::try_from(part.len()).map_err(|_| TooLargeError)?;
        self.unpacked_left = self.unpacked_left.checked_sub(length.into()).ok_or(TooLargeError)?;
        // Memory takes all that is written to it.
        self.encoder.write_all(&length.to_le_bytes()).map_err(|_| TooLargeError)?;
        self.encoder.write_all(part).map_err(|_| TooLargeError)?;
        if self.encoder.get_ref().len() > self.max_bytes { Err(TooLargeError) } else { Ok(()) }
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>, TooLargeError> {
        self.add(&[])?;
        let packed = self.encoder.finish().map_err(|_| TooLargeError)?;
        if packed.len() > self.max_bytes { Err(TooLargeError) } else { Ok(packed) }
    }
}

impl Unpacker {
    pub(crate) fn new(packed: Vec<u8>) -> Self {
        Self { decoder: DeflateDecoder::new(Cursor::new(packed)), unpacked_left: MAX_UNPACKED_BYTES }
    }

    /// `None` after the last part.
    /// Errors: it is no image, or has no end.
    pub(crate) fn next_part(&mut self) -> Result<Option<Vec<u8>>, DamagedImageError> {
        const DAMAGED: DamagedImageError = DamagedImageError("its parts cannot be read");
        let mut length = [0; LENGTH_BYTES];
        self.decoder.read_exact(&mut length).map_err(|_| DAMAGED)?;
        let length = u32::from_le_bytes(length);
        if length as usize > MAX_PART_BYTES {
            return Err(DAMAGED);
        }
        self.unpacked_left = self.unpacked_left.checked_sub(length.into()).ok_or(DAMAGED)?;
        let mut part = Vec::new();
        // Grows with the bytes that are there, not with the announced length.
        let read = (&mut self.decoder).take(length.into()).read_to_end(&mut part).map_err(|_| DAMAGED)?;
        if read as u64 != u64::from(length) {
            return Err(DAMAGED);
        }
        Ok((length > 0).then_some(part))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut packer = Packer::new(1 << 20);
        parts.iter().for_each(|part| packer.add(part).unwrap());
        packer.finish().unwrap()
    }

    fn unpacked(packed: Vec<u8>) -> Result<Vec<Vec<u8>>, DamagedImageError> {
        let (mut unpacker, mut parts) = (Unpacker::new(packed), Vec::new());
        while let Some(part) = unpacker.next_part()? {
            parts.push(part);
        }
        Ok(parts)
    }

    #[test]
    fn all_parts_together_are_bounded_however_few_bytes_they_are_packed_to() {
        let mut packer = Packer { unpacked_left: 999, ..Packer::new(1 << 20) };
        packer.add(&[0; 999]).unwrap();
        assert_eq!(packer.add(&[0]), Err(TooLargeError));
        let packed = packed(&[vec![0; 500], vec![0; 500]]);
        let mut unpacker = Unpacker { unpacked_left: 999, ..Unpacker::new(packed) };
        assert!(unpacker.next_part().is_ok_and(|part| part == Some(vec![0; 500])));
        assert!(unpacker.next_part().is_err());
    }

    #[test]
    fn hostile_bytes_as_stored_images() {
        let seeds = [packed(&[b"state".to_vec(), vec![7; 5_000]]), packed(&[]), vec![0; 9]];
        let seeds = seeds.each_ref().map(Vec::as_slice);
        sekisho_core::fuzz::feed(&seeds, |bytes| drop(unpacked(bytes.to_vec())));
    }

    proptest! {
        #[test]
        fn parts_are_read_as_they_were_added(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5_000), 0..9),
        ) {
            prop_assert_eq!(unpacked(packed(&parts)), Ok(parts));
        }

        #[test]
        fn what_is_cut_off_is_noticed_and_what_is_changed_is_read_to_some_end(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..500), 1..5),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let packed = packed(&parts);
            let at = at.index(packed.len());
            // The very end of the compressed form may have nothing of the parts.
            let cut = unpacked(packed[..at].to_vec());
            prop_assert!(cut.is_err() || cut == Ok(parts));
            let mut changed = packed;
            changed[at] = byte;
            let _ = unpacked(changed);
        }
    }

    #[test]
    fn an_image_has_a_maximum_size() {
        let noise = (0..200_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes());
        let noise: Vec<u8> = noise.collect();
        let mut packer = Packer::new(100_000);
        let added = noise.chunks(10_000).try_for_each(|part| packer.add(part));
        assert_eq!(added, Err(TooLargeError));
        let mut small = Packer::new(500);
        let added = small.add(&vec![7; 1 << 20]);
        assert!(added.is_err() || small.finish().is_err(), "a megabyte of one byte takes more than that");
        let mut enough = Packer::new(50_000);
        enough.add(&vec![7; 1 << 20]).unwrap();
        assert!(enough.finish().unwrap().len() < 50_000);
    }
}
