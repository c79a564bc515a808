package invitation

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

// parseField is the name and the length of the field that an invitation's bytes begin with.
func parseField(b []byte) (number protowire.Number, name string, length int) {
	number, kind, n := protowire.ConsumeTag(b)
	length = n + protowire.ConsumeFieldValue(number, kind, b[n:])
	f := (&v1alpha1.Invitation{}).ProtoReflect().Descriptor().Fields().ByNumber(number)
	return number, string(f.Name()), length
}

func FuzzInvitation(f *testing.F) {
	good, err := newInvitation(&v1alpha1.Invitation{
		Cluster: "east", Domain: "isthmus.internal", Gateways: []string{"203.0.113.7:15443"}, TrustDomain: "east.example",
		Roots: [][]byte{make([]byte, 32)}, Invited: "west", ExpiresUnix: 1_800_000_000,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.text())
	f.Add("isthmus-link-1.AAAA")
	f.Add("isthmus-link-2.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		check := func(text string) {
			i, err := parseInvitation(text)
			if err != nil {
				return
			}
			if i.check() != "" || len(i.secret) != secretLength {
				t.Errorf("taken: %v", i)
			}
			again, err := parseInvitation(i.text())
			if err != nil || !bytes.Equal(again.public, i.public) || !bytes.Equal(again.secret, i.secret) {
				t.Errorf("%v is not read as it was written: %v", i, err)
			}
		}
		check(text)
		rest := append(make([]byte, secretLength), text...) // as the content of one that is whole
		check(fmt.Sprintf("%s%d.%s", prefix, version, base64.RawURLEncoding.EncodeToString(append(checksum(rest), rest...))))
	})
}

// scripted is a stream on which the other side says what the fuzzer says.
type scripted struct {
	grpc.BidiStreamingServer[v1alpha1.MeetRequest, v1alpha1.MeetResponse]
	ctx  context.Context
	says []*v1alpha1.MeetRequest
	told []*v1alpha1.MeetResponse
}

func (s *scripted) Context() context.Context { return s.ctx }

func (s *scripted) Recv() (*v1alpha1.MeetRequest, error) {
	if len(s.says) == 0 {
		return nil, context.Canceled
	}
	next := s.says[0]
	s.says = s.says[1:]
	return next, nil
}

func (s *scripted) Send(m *v1alpha1.MeetResponse) error {
	s.told = append(s.told, m)
	return nil
}

// FuzzMeeting has strangers, who do not know the secret, say anything to who invites.
func FuzzMeeting(f *testing.F) {
	hello, _ := proto.Marshal(&v1alpha1.MeetHello{Version: version, Commitment: make([]byte, 32)})
	offer, _ := proto.Marshal(&v1alpha1.MeetOffer{Id: make([]byte, idLength), Nonce: make([]byte, nonceLength), Cluster: &v1alpha1.MeetDescription{Cluster: "west"}})
	for _, m := range []*v1alpha1.MeetRequest{
		{Message: &v1alpha1.MeetRequest_Hello{Hello: hello}}, {Message: &v1alpha1.MeetRequest_Offer{Offer: offer}, Mac: make([]byte, 32)},
		{Message: &v1alpha1.MeetRequest_Decision{Decision: &v1alpha1.MeetDecision{}}}, {},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	first, _ := proto.Marshal(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Hello{Hello: hello}})
	second, _ := proto.Marshal(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Offer{Offer: offer}, Mac: make([]byte, 32)})
	f.Add(first, second)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s := &Server{cfg: Config{Now: time.Now}, invitations: newInvitations(time.Now), limits: defaultLimits}
		i, err := newInvitation(&v1alpha1.Invitation{Cluster: "east", Invited: "west", ExpiresUnix: time.Now().Add(time.Hour).Unix()})
		if err != nil {
			t.Fatal(err)
		}
		i.Id = make([]byte, idLength) // which they may know
		if _, r := s.invitations.add(i, nil, "", ""); r != nil {
			t.Fatal(r)
		}
		stream := &scripted{ctx: t.Context()}
		for _, b := range [][]byte{first, second} {
			m := &v1alpha1.MeetRequest{}
			if proto.Unmarshal(b, m) == nil {
				stream.says = append(stream.says, m)
			}
		}
		m := &meeting{Server: s, stream: stream, nonce: make([]byte, nonceLength), own: &v1alpha1.MeetDescription{Cluster: "east"},
			with: &identity.Bootstrap{Binding: make([]byte, 32), ID: identity.ID{App: identity.ServiceApp("", "west")}}}
		if err := m.meet(); err == nil {
			t.Errorf("%x, %x: proved", first, second)
		}
		for _, told := range stream.told {
			if told.GetAnswer() != nil || told.GetDone() != nil {
				t.Errorf("%x, %x: told %v", first, second, told)
			}
		}
	})
}

// FuzzAnswer has a middle box, which does not know the secret, say anything to who accepts.
func FuzzAnswer(f *testing.F) {
	welcome, _ := proto.Marshal(&v1alpha1.MeetWelcome{Nonce: make([]byte, nonceLength), Roots: "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"})
	b, _ := proto.Marshal(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Welcome{Welcome: welcome}})
	f.Add(b)
	b, _ = proto.Marshal(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Answer{Answer: welcome}, Mac: make([]byte, 32)})
	f.Add(b)
	b, _ = proto.Marshal(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Refused{Refused: "\x1b[2J"}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &v1alpha1.MeetResponse{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		i, err := newInvitation(&v1alpha1.Invitation{Cluster: "east", Invited: "west", Roots: [][]byte{make([]byte, 32)}})
		if err != nil {
			t.Fatal(err)
		}
		a := &accepterMeeting{acceptance: &acceptance{Server: &Server{}, invitation: i}, with: &identity.Bootstrap{}}
		w := &v1alpha1.MeetWelcome{}
		if proto.Unmarshal(m.GetWelcome(), w) == nil {
			if _, err := a.known(w); err == nil {
				t.Errorf("%x is taken for the cluster that invites", b)
			}
		}
		if err := a.answered(newProof(i, a.with, nil, nil), m); err == nil {
			t.Errorf("%x is taken for its answer", b)
		}
		if text := refusedThere(m.GetRefused()).Error(); bytes.ContainsRune([]byte(text), 0x1b) {
			t.Errorf("%q commands a terminal", text)
		}
	})
}
