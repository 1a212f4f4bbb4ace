// Package codecs has codecs to copy: protocol buffers, MessagePack, compression by zstd, and encryption with keys that
// are rotated. Each implements [signalbox.Codec]. Zstd and Sealed wrap another codec:
//
//	sealed, err := codecs.NewSealed(codecs.NewZstd(signalbox.JSON{}), "2026-11", keys)
//	s, err := scheduler.New(rdb, scheduler.Config{Codec: sealed})
//	w, err := worker.New(rdb, worker.Config{Codecs: []signalbox.Codec{sealed}})
//
// Give a codec to all workers before a scheduler uses it. A worker without it puts the jobs back.
package codecs

import (
	"fmt"
	"reflect"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-go/signalbox"
)

// Proto encodes arguments that are messages of protocol buffers. The type of the arguments is a pointer, as generated
// code has it, with a method Kind beside that code: worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in *pb.Receipt) error ...).
type Proto struct{}

// Encoding returns "protobuf".
func (Proto) Encoding() string { return "protobuf" }

// Encode returns the message in the wire format.
func (Proto) Encode(_ *signalbox.Job, args any) ([]byte, error) {
	m, ok := args.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message of protocol buffers", args)
	}
	return proto.Marshal(m)
}

// Decode decodes into a pointer to a message, or into a pointer to such a pointer, which it sets.
func (Proto) Decode(_ *signalbox.Job, payload []byte, args any) error {
	m, ok := args.(proto.Message)
	if v := reflect.ValueOf(args).Elem(); !ok && v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		m, ok = v.Interface().(proto.Message)
	}
	if !ok {
		return fmt.Errorf("%T is no message of protocol buffers", args)
	}
	return proto.Unmarshal(payload, m)
}

// MsgPack encodes arguments as MessagePack.
type MsgPack struct{}

// Encoding returns "msgpack".
func (MsgPack) Encoding() string { return "msgpack" }

// Encode returns the arguments as MessagePack.
func (MsgPack) Encode(_ *signalbox.Job, args any) ([]byte, error) { return msgpack.Marshal(args) }

// Decode decodes MessagePack.
func (MsgPack) Decode(_ *signalbox.Job, payload []byte, args any) error {
	return msgpack.Unmarshal(payload, args)
}

// maxDecompressed bounds what a payload can become. A small payload can be made to decompress into very much.
const maxDecompressed = 64 << 20

// Zstd compresses what another codec makes.
type Zstd struct {
	inner signalbox.Codec
	enc   *zstd.Encoder
	dec   *zstd.Decoder
}

// NewZstd returns a codec that compresses what inner makes.
func NewZstd(inner signalbox.Codec) *Zstd {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // the options are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxDecompressed), zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err)
	}
	return &Zstd{inner, enc, dec}
}

// Encoding returns "zstd+" and the inner encoding.
func (z *Zstd) Encoding() string { return "zstd+" + z.inner.Encoding() }

// Encode compresses what the inner codec makes.
func (z *Zstd) Encode(job *signalbox.Job, args any) ([]byte, error) {
	data, err := z.inner.Encode(job, args)
	if err != nil {
		return nil, err
	}
	return z.enc.EncodeAll(data, nil), nil
}

// Decode decompresses the payload for the inner codec.
func (z *Zstd) Decode(job *signalbox.Job, payload []byte, args any) error {
	data, err := z.dec.DecodeAll(payload, nil)
	if err != nil {
		return err
	}
	return z.inner.Decode(job, data, args)
}
