//! Bytes into messages of the contract and back.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use super::status::of_refusal;
use crate::api::{Code, Refusal};

/// How many members a message may have, entries of a map counted one by one. Reading so many takes
/// milliseconds, which everybody else waits for; a process takes fewer variables.
const MAX_MEMBERS: usize = 1 << 16;

/// Writes as prost does, and refuses what cannot be read in the words of the contract.
pub(super) struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Reader<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        Reader {
            is_read: false,
            message: PhantomData,
        }
    }
}

/// Reads the message of one call.
pub(super) struct Reader<U> {
    /// Whether it has been: every method takes one, and tonic drops what comes behind it.
    is_read: bool,
    message: PhantomData<U>,
}

impl<U: Message + Default> Decoder for Reader<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if std::mem::replace(&mut self.is_read, true) {
            // The code that gRPC has for it (its statuscodes.md).
            let detail = "a second message came: this method takes one, so call it once for each";
            return Err(Status::unimplemented(detail));
        }
        let message = from.copy_to_bytes(from.remaining());
        let read = read(message).map_err(|why| {
            let detail = format!("the message cannot be read: {why}");
            of_refusal(Refusal::new(Code::MalformedRequest, detail))
        });
        read.map(Some)
    }
}

fn read<U: Message + Default>(message: Bytes) -> Result<U, String> {
    let mut rest = &message[..];
    for members in 0.. {
        if rest.is_empty() {
            break;
        }
        if members == MAX_MEMBERS {
            return Err(format!("it has more than {MAX_MEMBERS} members"));
        }
        let (tag, kind) = decode_key(&mut rest).map_err(|error| error.to_string())?;
        if kind == WireType::StartGroup {
            // There are none in the contract, and any number of members would be in one.
            return Err(format!("its member {tag} is a group"));
        }
        let skipped = skip_field(kind, tag, &mut rest, DecodeContext::default());
        skipped.map_err(|error| error.to_string())?;
    }
    U::decode(message).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grpc::proto::ExecuteToolRequest;

    fn with_variables(count: usize) -> ExecuteToolRequest {
        ExecuteToolRequest {
            env: (0..count).map(|n| (n.to_string(), String::new())).collect(),
            ..ExecuteToolRequest::default()
        }
    }

    fn back(request: &ExecuteToolRequest) -> Result<ExecuteToolRequest, String> {
        read(request.encode_to_vec().into())
    }

    #[test]
    fn a_message_has_so_many_members_and_no_more() {
        assert_eq!(back(&with_variables(0)), Ok(with_variables(0)));
        let most = with_variables(MAX_MEMBERS);
        assert_eq!(back(&most), Ok(most));
        let refused = back(&with_variables(MAX_MEMBERS + 1)).expect_err("too many");
        assert!(refused.contains("65536 members"), "{refused}");
    }

    #[test]
    fn what_is_no_message_is_told() {
        for (bytes, part) in [
            (&b"\x0a\x05ab"[..], "buffer underflow"),
            (b"\xff", "varint"),
            (b"\x0a\x01\xff", "UTF-8"),
            (b"\xa3\x06\x08\x00\xa4\x06", "group"),
        ] {
            let refused = read::<ExecuteToolRequest>(Bytes::from_static(bytes));
            let refused = refused.expect_err(part);
            assert!(refused.contains(part), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let read_by_us = read::<ExecuteToolRequest>(bytes.clone().into());
            let read_by_prost = ExecuteToolRequest::decode(&bytes[..]);
            let is_group = matches!(&read_by_us, Err(why) if why.contains("group"));
            prop_assert!(is_group || read_by_us.ok() == read_by_prost.ok());
        }
    }
}
