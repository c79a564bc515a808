package etcdclient

import (
	"context"
	"errors"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// session proves to the server who we are: it gets a token for the password, adds it to
// each request and gets another when the server knows it no more. The client library would
// do so too, but asks for the first token when it is made, and keeps one password.
type session struct {
	username string
	password *settings.Secret // nil: the certificate is the user, or there is none

	mu    sync.Mutex
	token string // empty: to be got
}

func newSession(username string, password *settings.Secret) *session {
	return &session{username: username, password: password}
}

// authenticate is the one request that takes no token.
const authenticate = "/etcdserverpb.Auth/Authenticate"

// errSecret is a password that can't be had here; the server was not asked.
var errSecret = errors.New("password")

// unary is the interceptor of requests. None waits for a server to come back, as the
// client library would have it: what asked says that it is away, and asks again.
func (s *session) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	opts = append(opts, grpc.WaitForReady(false))
	if s.password == nil || method == authenticate {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	for again := false; ; again = true {
		token, err := s.get(ctx, cc)
		if err != nil {
			return err
		}
		err = invoke(with(ctx, token), method, req, reply, cc, opts...)
		if lost(err) {
			s.drop(token)
			return err
		}
		if again || !expired(err) {
			return err
		}
		s.drop(token)
	}
}

// stream is the interceptor of streams. Whether the server takes the token shows when the
// stream is used: see Client.Forget.
func (s *session) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if s.password == nil {
		return open(ctx, desc, cc, method, opts...)
	}
	token, err := s.get(ctx, cc)
	if err != nil {
		return nil, err
	}
	return open(with(ctx, token), desc, cc, method, opts...)
}

func with(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
}

// get returns the token that there is, or gets one.
func (s *session) get(ctx context.Context, cc *grpc.ClientConn) (string, error) {
	s.mu.Lock()
	token := s.token
	s.mu.Unlock()
	if token != "" {
		return token, nil
	}
	password, err := s.password.Read()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errSecret, err)
	}
	answer, err := pb.NewAuthClient(cc).Authenticate(ctx, &pb.AuthenticateRequest{Name: s.username, Password: password})
	if rpctypes.Error(err) == rpctypes.ErrAuthNotEnabled {
		return "", nil // everybody may do everything
	}
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = answer.Token
	return s.token, nil
}

// dropAny forgets the token that there is.
func (s *session) dropAny() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = ""
}

// drop forgets a token, unless there is another by now.
func (s *session) drop(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == token {
		s.token = ""
	}
}

// lost tells whether the server was lost: the one that is there next may know nothing of
// our token. One that was put back to a backup lets a request with a token of before wait
// without end, since the token names a state that it has not come to yet.
func lost(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// expired tells whether another token may help: it ran out, the server was restarted, or
// its users were changed.
func expired(err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty:
		return true
	}
	return false
}

// connections forgets the token when a connection is lost, without waiting for a request
// to find out. It is a stats.Handler of gRPC.
type connections struct{ *session }

// HandleConn is told of a connection's begin and end.
func (c connections) HandleConn(_ context.Context, what stats.ConnStats) {
	if _, end := what.(*stats.ConnEnd); end {
		c.dropAny()
	}
}

// TagConn has nothing to add.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC has nothing to add.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC has nothing to count.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}
