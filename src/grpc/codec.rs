//! Bytes into messages of the contract and back.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use super::proto::{ExecuteToolRequest, GetToolRequest, ListToolsRequest};
use super::status::of_refusal;
use crate::api::{Code, Refusal};

/// How many members a message may have, entries of a map counted one by one. Reading so many takes
/// milliseconds, which everybody else waits for; a process takes fewer variables.
const MAX_MEMBERS: usize = 1 << 16;

/// What an entry of a map has, and is not counted for: a key and a value. Of either there may be more, of which the
/// last counts, and each of them is read.
const ENTRY: usize = 2;

/// A message that clients send.
pub(super) trait Asked: Message + Default + Send + 'static {
    /// The numbers of its maps. It holds no other messages.
    const MAPS: &[u32] = &[];
}

impl Asked for ExecuteToolRequest {
    const MAPS: &[u32] = &[11];
}

impl Asked for GetToolRequest {}

impl Asked for ListToolsRequest {}

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
    U: Asked,
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

impl<U: Asked> Decoder for Reader<U> {
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

fn read<U: Asked>(message: Bytes) -> Result<U, String> {
    members(&message, U::MAPS)?;
    U::decode(message).map_err(|error| error.to_string())
}

/// How many members a message has, or why it is not read.
fn members(message: &[u8], maps: &[u32]) -> Result<usize, String> {
    let (mut rest, mut count) = (message, 0);
    while !rest.is_empty() {
        let (tag, kind) = decode_key(&mut rest).map_err(|error| error.to_string())?;
        if kind == WireType::StartGroup {
            // There are none in the contract, and any number of members would be in one.
            return Err(format!("its member {tag} is a group"));
        }
        let mut entry = rest;
        let skipped = skip_field(kind, tag, &mut rest, DecodeContext::default());
        skipped.map_err(|error| error.to_string())?;
        count += 1;
        if kind == WireType::LengthDelimited && maps.contains(&tag) {
            let length = decode_varint(&mut entry).map_err(|error| error.to_string())?;
            let end = usize::try_from(length).unwrap_or(usize::MAX);
            let within = members(entry.get(..end).unwrap_or_default(), &[])?;
            count += within.saturating_sub(ENTRY);
        }
        if count > MAX_MEMBERS {
            return Err(format!("it has more than {MAX_MEMBERS} members"));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use prost_types::FileDescriptorSet;
    use prost_types::field_descriptor_proto::Type;

    use super::*;
    use crate::grpc::proto::DESCRIPTOR;

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
    fn so_has_an_entry_of_its_map() {
        // Field 1 of the entry, empty, again and again.
        let with_keys = |count: usize| {
            let mut message = Vec::new();
            prost::encoding::encode_key(11, WireType::LengthDelimited, &mut message);
            prost::encoding::encode_varint(2 * count as u64, &mut message);
            message.extend(b"\x0a\x00".repeat(count));
            read::<ExecuteToolRequest>(message.into())
        };
        with_keys(MAX_MEMBERS).expect("as many as there may be");
        let refused = with_keys(MAX_MEMBERS + 8).expect_err("too many");
        assert!(refused.contains("65536 members"), "{refused}");
    }

    #[test]
    fn the_messages_that_a_message_holds_are_known() {
        let all = FileDescriptorSet::decode(DESCRIPTOR).expect("a descriptor");
        let messages = all.file.iter().flat_map(|file| &file.message_type);
        let mut held = Vec::new();
        for message in messages.filter(|message| message.name().ends_with("Request")) {
            let fields = message
                .field
                .iter()
                .filter(|field| matches!(field.r#type(), Type::Message | Type::Group));
            let numbers: Vec<i32> = fields.map(|field| field.number()).collect();
            held.push((message.name(), numbers));
        }
        let maps = |maps: &[u32]| maps.iter().map(|&map| map.cast_signed()).collect();
        held.sort_unstable();
        assert_eq!(
            held,
            [
                ("ExecuteToolRequest", maps(ExecuteToolRequest::MAPS)),
                ("GetToolRequest", maps(GetToolRequest::MAPS)),
                ("ListToolsRequest", maps(ListToolsRequest::MAPS)),
            ]
        );
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
