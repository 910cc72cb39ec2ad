package stack

import (
	"net"
	"path/filepath"
	"strconv"

	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// startFCM starts the strict fake in this process: it must outlive every fault of the
// services, and its record is read directly.
func (s *Stack) startFCM(o Options) error {
	options := fcmfake.Options{KeyFile: filepath.Join(s.dir, "fcm-service-account.json")}
	if o.Ports.FCM != 0 {
		options.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Ports.FCM))
	}
	var err error
	if s.FCM, err = fcmfake.Start(options); err != nil {
		return err
	}
	s.closers = append(s.closers, s.FCM.Close)
	return nil
}

// fcmEnv points push-consumer at the fake: the key file names its token endpoint.
func (s *Stack) fcmEnv() map[string]string {
	return map[string]string{
		"SEAHUB_FCM_ENDPOINT": s.FCM.URL(),
		"SEAHUB_FCM_KEY_FILE": s.FCM.KeyFile(),
	}
}
