#include "launcher/nodes/store/store_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "launcher/nodes/control/control_link.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/tcp_socket.h"
#include "tests/launcher/remembered_messages.h"
#include "tests/launcher/wire.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

using namespace std::chrono_literals;

// A client of `port`, which sends and receives as the loop goes on.
class TestClient {
 public:
  explicit TestClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    ask(wire::hello());
  }
  void ask(std::string_view bytes) { outgoing_ += bytes; }
  void go_on(bool reads = true) {
    const ssize_t sent = ::send(fd_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) outgoing_.erase(0, static_cast<std::size_t>(sent));
    if (!reads) return;
    std::string part(1 << 16, '\0');
    const ssize_t count = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (count > 0) answers_.append(part, 0, static_cast<std::size_t>(count));
    is_closed_ = is_closed_ || count == 0 || (count < 0 && errno == ECONNRESET);
  }
  const std::string& answers() const { return answers_; }
  std::size_t unsent() const { return outgoing_.size(); }
  bool is_closed() const { return is_closed_; }
  void die() { fd_.reset(); }

 private:
  UniqueFd fd_;
  std::string outgoing_;
  std::string answers_;
  bool is_closed_ = false;
};

// The connection of two launchers, one of which has the store.
class TwoLaunchers {
 public:
  TwoLaunchers(EventLoop& loop, StoreServer& server) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    auto to_store = std::make_shared<control::ControlLink>(
        loop, UniqueFd(ends[0]),
        control::ControlLink::Callbacks{.on_message = [](const control::Message&) {},
                                        .on_sign_of_life = [] {},
                                        .on_relayed =
                                            [store_channel = store_channel_](std::uint32_t, std::string_view bytes) {
                                              if (store_channel->on_bytes) store_channel->on_bytes(bytes);
                                            },
                                        .on_space_available =
                                            [store_channel = store_channel_] {
                                              if (store_channel->on_space_available)
                                                store_channel->on_space_available();
                                            },
                                        .on_closed =
                                            [store_channel = store_channel_](const std::string&) {
                                              store_channel->send = nullptr;
                                              if (store_channel->on_closed) store_channel->on_closed();
                                            }});
    auto back = std::make_shared<StoreChannel>();
    to_node_ = std::make_unique<control::ControlLink>(
        loop, UniqueFd(ends[1]),
        control::ControlLink::Callbacks{.on_message = [](const control::Message&) {},
                                        .on_sign_of_life = [] {},
                                        .on_relayed =
                                            [this, &server](std::uint32_t, std::string_view bytes) {
                                              if (!server.proxies().on_received(1, bytes)) to_node_->abort_session();
                                            },
                                        .on_space_available = [&server] { server.proxies().on_space_available(1); },
                                        .on_closed = [&server](const std::string&) { server.proxies().drop(1); }});
    connect(*store_channel_, *to_store);
    connect(*back, *to_node_);
    server.proxies().add(1, "node 1", back);
    to_store_ = std::move(to_store);
  }
  const std::shared_ptr<StoreChannel>& store_channel() const { return store_channel_; }
  control::ControlLink& to_store() { return *to_store_; }
  bool is_open() const { return to_node_->is_open(); }
  // The launcher with the store ends.
  void lose_store() { to_node_->abort_session(); }

 private:
  static void connect(StoreChannel& store_channel, control::ControlLink& link) {
    store_channel.send = [&link](std::string_view bytes) { link.relay_bytes(0, bytes); };
    store_channel.flush = [&link] { link.flush(); };
    store_channel.has_room = [&link] { return link.has_room(); };
  }

  std::shared_ptr<StoreChannel> store_channel_ = std::make_shared<StoreChannel>();
  std::shared_ptr<control::ControlLink> to_store_;
  std::unique_ptr<control::ControlLink> to_node_;
};

class StoreProxyTest {
 protected:
  StoreProxyTest() {
    server_.emplace(loop_, messages_, ServerOptions{});
    launchers_.emplace(loop_, *server_);
    proxy_.emplace(loop_, messages_, ProxyOptions{.store_channel = launchers_->store_channel()});
  }
  void round() {
    loop_.call_at(EventLoop::Clock::now(), [] {});
    loop_.run_once();
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = EventLoop::Clock::now() + 60s;
    while (!condition() && EventLoop::Clock::now() < limit) round();
    return condition();
  }
  bool has_answer(TestClient& client, std::size_t size) {
    return run_until([&] {
      client.go_on();
      return client.answers().size() >= size || client.is_closed();
    });
  }

  EventLoop loop_;
  RememberedMessages messages_;
  std::optional<StoreServer> server_;
  std::optional<TwoLaunchers> launchers_;
  std::optional<StoreProxy> proxy_;
};

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: clients share one connection, and each is answered in its order") {
  std::vector<TestClient> clients;
  for (int i = 0; i < 20; ++i) clients.emplace_back(proxy_->port());
  for (TestClient& client : clients) client.ask(wire::add("count", 1) + wire::with_key(Opcode::kGet, "nothing"));
  for (TestClient& client : clients) REQUIRE(has_answer(client, 16));
  CHECK(server_->look_up("count") == "20");
  CHECK(server_->connections() == 0);
  CHECK(server_->proxies().links() == 1);
  CHECK(server_->proxies().clients() == 20);
  clients.clear();
  CHECK(run_until([&] { return server_->proxies().clients() == 0; }));
  CHECK(proxy_->clients() == 0);
  CHECK(messages_.lines.empty());
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: a client that waits holds up no other, and gets its key at last") {
  TestClient waiting(proxy_->port());
  TestClient other(proxy_->port());
  waiting.ask(wire::with_keys(Opcode::kWait, {"key"}));
  waiting.go_on();
  for (int i = 1; i <= 100; ++i) {
    other.ask(wire::add("count", 1));
    REQUIRE(has_answer(other, 8 * static_cast<std::size_t>(i)));
  }
  waiting.go_on();
  CHECK(waiting.answers().empty());
  other.ask(wire::set("key", "value"));
  other.go_on();
  REQUIRE(has_answer(waiting, 1));
  waiting.ask(wire::with_key(Opcode::kGet, "key"));
  REQUIRE(has_answer(waiting, 1 + 8 + 5));
  CHECK(waiting.answers().substr(1) == wire::text("value"));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: a client's death cancels what it waits for at the store") {
  std::optional<TestClient> waiting(proxy_->port());
  waiting->ask(wire::add("here", 1) + wire::with_keys(Opcode::kWait, {"queue"}));
  REQUIRE(has_answer(*waiting, 8));
  waiting.reset();
  REQUIRE(run_until([&] { return server_->proxies().clients() == 0; }));
  // What is pushed wakes the one who is there, not the one who was.
  TestClient other(proxy_->port());
  other.ask(wire::with_keys(Opcode::kWait, {"queue"}));
  other.go_on();
  TestClient pushing(proxy_->port());
  REQUIRE(run_until([&] { return server_->proxies().clients() == 2; }));
  pushing.ask(wire::with_key(Opcode::kQueuePush, "queue") + wire::text("x"));
  pushing.go_on();
  CHECK(has_answer(other, 1));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: values larger than every buffer pass both ways") {
  const std::string value(5 << 20, 'v');
  TestClient writer(proxy_->port());
  writer.ask(wire::set("large", value) + wire::add("done", 1));
  REQUIRE(has_answer(writer, 8));
  TestClient reader(proxy_->port());
  reader.ask(wire::with_key(Opcode::kGet, "large"));
  REQUIRE(has_answer(reader, 8 + value.size()));
  CHECK(reader.answers() == wire::text(value));
}

TEST_CASE_METHOD(StoreProxyTest,
                 "StoreProxy: a client that reads nothing holds up no other, and memory stays bounded") {
  const std::string value(1 << 20, 'v');
  TestClient writer(proxy_->port());
  writer.ask(wire::set("large", value) + wire::add("done", 1));
  REQUIRE(has_answer(writer, 8));
  TestClient greedy(proxy_->port());
  for (int i = 0; i < 100; ++i) greedy.ask(wire::with_key(Opcode::kGet, "large"));
  TestClient other(proxy_->port());
  for (int i = 1; i <= 200; ++i) {
    greedy.go_on(/*reads=*/false);
    other.ask(wire::add("count", 1));
    REQUIRE(has_answer(other, 8 * static_cast<std::size_t>(i)));
  }
  REQUIRE(has_answer(greedy, 100 * (8 + value.size())));
  CHECK(greedy.answers().size() == 100 * (8 + value.size()));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: a flood of requests is held back until the store has answered") {
  TestClient flood(proxy_->port());
  std::string requests;
  for (int i = 0; i < 100000; ++i) requests += wire::add("count", 1);
  flood.ask(requests);
  REQUIRE(has_answer(flood, 8 * 100000));
  CHECK(server_->look_up("count") == "100000");
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: a client that does not speak the protocol is closed alone") {
  TestClient good(proxy_->port());
  TestClient bad(proxy_->port());
  bad.ask("\x63");
  REQUIRE(run_until([&] {
    bad.go_on();
    return bad.is_closed();
  }));
  good.ask(wire::add("count", 1));
  CHECK(has_answer(good, 8));
  REQUIRE(messages_.lines.size() == 1);
  CHECK_THAT(messages_.lines[0], Catch::Matchers::ContainsSubstring("unknown operation 99"));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: when the store goes, every client's connection is closed, and new ones") {
  TestClient client(proxy_->port());
  client.ask(wire::with_keys(Opcode::kWait, {"never"}));
  REQUIRE(run_until([&] {
    client.go_on();
    return server_->proxies().clients() == 1;
  }));
  launchers_->lose_store();
  CHECK(run_until([&] {
    client.go_on();
    return client.is_closed();
  }));
  TestClient late(proxy_->port());
  CHECK(run_until([&] {
    late.go_on();
    return late.is_closed();
  }));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: when a proxy goes, the store forgets all its clients") {
  TestClient client(proxy_->port());
  client.ask(wire::with_keys(Opcode::kWait, {"never"}));
  REQUIRE(run_until([&] {
    client.go_on();
    return server_->proxies().clients() == 1;
  }));
  proxy_.reset();
  CHECK(run_until([&] { return server_->proxies().clients() == 0; }));
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: when a launcher goes, the store forgets all clients of its proxy") {
  TestClient client(proxy_->port());
  client.ask(wire::with_keys(Opcode::kWait, {"never"}));
  REQUIRE(run_until([&] {
    client.go_on();
    return server_->proxies().clients() == 1;
  }));
  launchers_->to_store().abort_session();
  CHECK(run_until([&] { return server_->proxies().links() == 0; }));
  CHECK(server_->proxies().clients() == 0);
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: many that read large values at once all get them") {
  const std::string value(std::size_t{1} << 20, 'v');
  TestClient writer(proxy_->port());
  writer.ask(wire::set("large", value) + wire::add("done", 1));
  REQUIRE(has_answer(writer, 8));
  std::vector<TestClient> readers;
  for (int i = 0; i < 12; ++i) readers.emplace_back(proxy_->port());
  for (TestClient& reader : readers) reader.ask(wire::with_key(Opcode::kGet, "large"));
  const bool have_all = run_until([&] {
    bool all = true;
    for (TestClient& reader : readers) {
      reader.go_on();
      all = all && reader.answers().size() == 8 + value.size();
    }
    return all;
  });
  CHECK(have_all);
}

TEST_CASE_METHOD(StoreProxyTest, "ControlLink: a message overtakes what the connection carries") {
  // Nobody reads meanwhile: what the kernel takes is full.
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  const UniqueFd reader(ends[1]);
  control::ControlLink link(loop_, UniqueFd(ends[0]),
                            {.on_message = [](const control::Message&) {},
                             .on_sign_of_life = [] {},
                             .on_relayed = [](std::uint32_t, std::string_view) {},
                             .on_space_available = [] {},
                             .on_closed = [](const std::string&) {}});
  const std::string piece(control::kMaxCarriedBytes, 'p');
  for (int i = 0; i < 100; ++i) link.relay_bytes(0, piece);
  CHECK_FALSE(link.has_room());
  link.flush();
  link.send(control::Acknowledged{5});
  control::FrameReader frames;
  std::size_t carried_before = 0;
  std::size_t carried = 0;
  bool is_heard = false;
  REQUIRE(run_until([&] {
    std::string bytes(1 << 16, '\0');
    const ssize_t count = ::recv(reader.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) frames.feed(std::string_view(bytes).substr(0, static_cast<std::size_t>(count)));
    while (const auto arrival = frames.next()) {
      carried += arrival->round ? arrival->bytes.size() : 0;
      if (arrival->round) continue;
      is_heard = true;
      carried_before = carried;
    }
    return carried == 100 * piece.size();
  }));
  CHECK(is_heard);
  CHECK(carried_before < carried);  // what the kernel had taken came first, and no more
  CHECK(link.has_room());
}

TEST_CASE_METHOD(StoreProxyTest, "StoreServer: a proxy that sends more than it may, or no frames, is dropped") {
  std::string bytes;
  SECTION("no frames") {
    bytes = std::string(9, '\x7f');
  }
  SECTION("taken without having been sent") {
    append_frame(bytes, FrameKind::kOpen, 1, {});
    append_frame(bytes, FrameKind::kTaken, 1, {}, 1);
  }
  for (const char byte : bytes) launchers_->to_store().relay_bytes(0, std::string_view(&byte, 1));
  launchers_->to_store().flush();
  CHECK(run_until([&] { return !launchers_->is_open(); }));
  CHECK(server_->proxies().links() == 0);
}

// A request of each kind on few keys, so that they meet.
std::string random_request(std::mt19937& random) {
  const auto pick = [&](int size) { return static_cast<int>(random() % static_cast<unsigned>(size)); };
  const auto key = [&] { return "k" + std::to_string(pick(6)); };
  const auto value = [&] { return std::string(static_cast<std::size_t>(pick(4) == 0 ? pick(200000) : pick(30)), 'v'); };
  switch (pick(15)) {
    case 0:
      return wire::set(key(), value());
    case 1:
      return wire::with_key(Opcode::kCompareSet, key()) + wire::text(value()) + wire::text(value());
    case 2:
      return wire::with_key(Opcode::kGet, key());
    case 3:
      return wire::add("n" + key(), pick(100));
    case 4:
      return wire::with_keys(Opcode::kCheck, {key(), key()});
    case 5:
      return wire::with_keys(Opcode::kWait, {"n" + key()}) + wire::opcode(Opcode::kCancelWait);
    case 6:
      return wire::opcode(Opcode::kNumKeys);
    case 7:
      return wire::with_key(Opcode::kDelete, key());
    case 8:
      return wire::with_key(Opcode::kAppend, key()) + wire::text(value());
    case 9:
      return wire::with_keys(Opcode::kMultiGet, {key(), key(), key()});
    case 10:
      return wire::opcode(Opcode::kMultiSet) + wire::u64(2) + wire::text(key()) + wire::text(value()) +
             wire::text(key()) + wire::text(value());
    case 11:
      return wire::opcode(Opcode::kPing) + wire::integer(static_cast<std::uint32_t>(pick(1000)));
    case 12:
      return wire::with_key(Opcode::kQueuePush, "q" + key()) + wire::text(value());
    case 13:
      return wire::with_key(Opcode::kQueuePop, "q" + key());
    default:
      return wire::with_key(Opcode::kQueueLen, "q" + key());
  }
}

TEST_CASE_METHOD(StoreProxyTest, "StoreProxy: any sequence of requests has the answers of a direct connection") {
  const unsigned seed = GENERATE(range(1U, 21U));
  CAPTURE(seed);
  StoreServer direct(loop_, messages_, {});
  std::mt19937 random(seed);
  std::vector<TestClient> proxied_clients;
  std::vector<TestClient> direct_clients;
  for (int i = 0; i < 5; ++i) {
    proxied_clients.emplace_back(proxy_->port());
    direct_clients.emplace_back(direct.port());
  }
  for (int step = 0; step < 200; ++step) {
    // One client at a time, whose last request is answered before the next client begins: else the order is open.
    const std::size_t who = random() % proxied_clients.size();
    std::string requests;
    for (unsigned n = 1 + random() % 5; n > 0; --n) requests += random_request(random);
    requests += wire::opcode(Opcode::kPing) + wire::integer(static_cast<std::uint32_t>(0xabad1dea + step));
    const std::string last = wire::integer(static_cast<std::uint32_t>(0xabad1dea + step));
    for (TestClient* client : {&proxied_clients[who], &direct_clients[who]}) {
      client->ask(requests);
      REQUIRE(run_until([&] {
        client->go_on();
        return client->answers().ends_with(last) || client->is_closed();
      }));
      REQUIRE_FALSE(client->is_closed());
    }
    REQUIRE((proxied_clients[who].answers() == direct_clients[who].answers()));
  }
}

}  // namespace
}  // namespace launcher::store
