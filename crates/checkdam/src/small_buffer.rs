//! A byte buffer with inline storage that allocates only for long contents.

/// How many bytes need no heap: a few subjects, or one header.
const INLINE: usize = 256;

/// Bytes that are written one piece after another.
#[derive(Debug)]
pub(crate) struct SmallBuffer {
    inline: [u8; INLINE],
    /// How many of those are written; all are on the heap once they do not fit.
    length: usize,
    heap: Vec<u8>,
}

impl SmallBuffer {
    pub(crate) const fn new() -> Self {
        Self { inline: [0; INLINE], length: 0, heap: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.inline.get_mut(self.length..).and_then(|rest| rest.get_mut(..bytes.len())) {
            Some(place) if self.heap.is_empty() => {
                place.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.push_on_heap(bytes),
        }
    }

    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        self.push(text.as_bytes());
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        if self.heap.is_empty() { self.length } else { self.heap.len() }
    }

    pub(crate) fn clear(&mut self) {
        self.length = 0;
        self.heap.clear();
    }

    /// What was written, if it is text; everything that is pushed as such is.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self).unwrap_or_default()
    }

    #[cold]
    fn push_on_heap(&mut self, bytes: &[u8]) {
        if self.heap.is_empty() {
            self.heap.reserve(2 * INLINE + bytes.len());
            self.heap.extend_from_slice(&self.inline[..self.length]);
        }
        self.heap.extend_from_slice(bytes);
    }
}

impl Default for SmallBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::ops::Deref for SmallBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        if self.heap.is_empty() { &self.inline[..self.length] } else { &self.heap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_goes_to_the_heap_and_stays_in_order() {
        for piece in [1, 7, 255, 256, 257] {
            let mut buffer = SmallBuffer::new();
            let mut expected = Vec::new();
            for number in 0..600_usize.div_ceil(piece) {
                let bytes = vec![b'a' + (number % 26) as u8; piece];
                buffer.push(&bytes);
                buffer.push(&[]);
                expected.extend_from_slice(&bytes);
                assert_eq!((&*buffer, buffer.len()), (&*expected, expected.len()), "in pieces of {piece}");
            }
            assert_eq!(buffer.as_str().as_bytes(), expected);
            buffer.clear();
            assert!(buffer.is_empty());
            buffer.push_str("again");
            assert_eq!(buffer.as_str(), "again");
        }
    }
}
