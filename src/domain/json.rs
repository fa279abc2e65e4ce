use std::io;

/// Where serde_json writes to when JSON goes into memory. It writes every quotation mark, colon and
/// brace by itself, fourteen hundred of them for an execution and its records: here each costs a few
/// instructions, and not the call that a vector makes of it.
#[derive(Debug)]
pub struct JsonSink<'a>(pub &'a mut Vec<u8>);

impl io::Write for JsonSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    #[expect(clippy::inline_always, reason = "not to be a call is what it is for")]
    #[inline(always)]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            &[byte] => self.0.push(byte),
            _ => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
