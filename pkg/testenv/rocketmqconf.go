package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// The accounts of every cluster that testenv starts. A cluster that one process
// started can so be used by another, by SEAHUB_TEST_ROCKETMQ_ADDR.
func (c *RocketMQCluster) useOwnAccounts() {
	account := func(name string) remoting.Account {
		return remoting.Account{AccessKey: "testenv-" + name, SecretKey: "secret-of-" + name}
	}
	c.Admin, c.Publisher = account("admin"), account("publisher")
	c.Consumer, c.Stranger = account("consumer"), account("stranger")
}

// aclAccount has rights to all topics and all groups alike: tests name theirs as
// they come, so none can be listed.
type aclAccount struct {
	remoting.Account
	admin         bool
	topic, groups string
}

func (c *RocketMQCluster) aclAccounts() []aclAccount {
	return []aclAccount{
		{Account: c.Admin, admin: true, topic: "PUB|SUB", groups: "PUB|SUB"},
		{Account: c.Publisher, topic: "PUB", groups: "DENY"},
		{Account: c.Consumer, topic: "SUB", groups: "SUB"},
		{Account: c.Stranger, topic: "DENY", groups: "DENY"},
	}
}

func (c *RocketMQCluster) aclFile() string {
	var b strings.Builder
	b.WriteString("globalWhiteRemoteAddresses: []\naccounts:\n")
	for _, a := range c.aclAccounts() {
		fmt.Fprintf(&b, "- accessKey: %s\n  secretKey: %s\n  whiteRemoteAddress: ''\n  admin: %t\n  defaultTopicPerm: %s\n  defaultGroupPerm: %s\n",
			a.AccessKey, a.SecretKey, a.admin, a.topic, a.groups)
	}
	return b.String()
}

// aclSettings turn the check on. Version 5 replaced it by another, which takes over
// the accounts of version 4's file at its first start.
func (c *RocketMQCluster) aclSettings() string {
	if strings.HasPrefix(c.Version, "4.") {
		return "aclEnable=true\n"
	}
	const auth = "org.apache.rocketmq.auth."
	return fmt.Sprintf(`authenticationEnabled=true
authenticationProvider=%[1]sauthentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider=%[1]sauthentication.provider.LocalAuthenticationMetadataProvider
initAuthenticationUser={"username":"%[2]s","password":"%[3]s"}
innerClientAuthenticationCredentials={"accessKey":"%[2]s","secretKey":"%[3]s"}
authorizationEnabled=true
authorizationProvider=%[1]sauthorization.provider.DefaultAuthorizationProvider
authorizationMetadataProvider=%[1]sauthorization.provider.LocalAuthorizationMetadataProvider
migrateAuthFromV1Enabled=true
`, auth, c.Admin.AccessKey, c.Admin.SecretKey)
}

func (c *RocketMQCluster) writeNameServerConf(s *Server) error {
	return writeConf(s.dir, map[string]string{
		"logback_namesrv.xml": logback,
		"namesrv.conf": fmt.Sprintf(`listenPort=%s
bindAddress=127.0.0.1
kvConfigPath=%[2]s/kvConfig.json
configStorePath=%[2]s/namesrv.properties
`, portText(s), s.dir),
	})
}

// writeBrokerConf: small files, so that a folder costs little; a name server that
// restarted is told of the broker within 10 s, the least that it allows.
func (c *RocketMQCluster) writeBrokerConf(s *Server, more []string) error {
	flush := "ASYNC_FLUSH"
	if s.options.Durable {
		flush = "SYNC_FLUSH"
	}
	return writeConf(s.dir, map[string]string{
		"logback_broker.xml": logback,
		"plain_acl.yml":      c.aclFile(),
		"broker.conf": fmt.Sprintf(`brokerClusterName=testenv
brokerName=%s
brokerId=0
brokerRole=ASYNC_MASTER
flushDiskType=%s
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
namesrvAddr=%s
listenPort=%s
storePathRootDir=%[5]s/store
storePathCommitLog=%[5]s/store/commitlog
mappedFileSizeCommitLog=67108864
mappedFileSizeConsumeQueue=120000
maxHashSlotNum=50000
maxIndexNum=200000
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=false
enablePropertyFilter=true
traceTopicEnable=false
transientStorePoolEnable=false
warmMapedFileEnable=false
slaveReadEnable=false
waitTimeMillsInSendQueue=2000
fileReservedTime=1
diskMaxUsedSpaceRatio=95
timerWheelEnable=false
registerNameServerPeriod=10000
`, brokerName, flush, c.Addr(), portText(s), s.dir) + c.aclSettings() + strings.Join(append(more, ""), "\n"),
	})
}

// logback: version 4 does not start without the file. What it prints goes to the
// server's log.
const logback = `<configuration>
  <appender name="A" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <logger name="RocketmqConsole" additivity="false" level="INFO"/>
  <root level="WARN"><appender-ref ref="A"/></root>
</configuration>
`

func writeConf(home string, files map[string]string) error {
	conf := filepath.Join(home, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return fmt.Errorf("make the folder of the configuration: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(conf, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the configuration: %w", err)
		}
	}
	return nil
}
