// The store: what three clients send, in pieces as the network would cut it.
#include <map>
#include <random>

#include "launcher/nodes/store/key_value_store.h"
#include "launcher/nodes/store/request_parser.h"
#include "tests/fuzz/fuzz.h"
#include "tests/launcher/wire.h"

namespace {

using namespace launcher;
using namespace launcher::store;

constexpr std::uint8_t kClients = 3;

class CountingSink : public ReplySink {
 public:
  void send_u8(ConnectionId to, std::uint8_t) override { bytes[to] += 1; }
  void send_u32(ConnectionId to, std::uint32_t) override { bytes[to] += 4; }
  void send_i64(ConnectionId to, std::int64_t) override { bytes[to] += 8; }
  void send_bytes(ConnectionId to, const Value& value) override { bytes[to] += 8 + value->size(); }
  void send_raw(ConnectionId to, const Value& raw) override { bytes[to] += raw->size(); }
  std::map<ConnectionId, std::size_t> bytes;
};

struct Parsed {
  std::size_t requests = 0;
  std::size_t bytes = 0;  // in keys and values
  std::string error;
};

Parsed parse(std::string_view input, std::size_t piece, KeyValueStore& contents, ConnectionId from,
             CountingSink& sink) {
  RequestParser parser;
  Parsed parsed;
  while (!input.empty()) {
    parser.feed(input.substr(0, piece));
    input.remove_prefix(std::min(piece, input.size()));
    while (const auto request = parser.next()) {
      ++parsed.requests;
      for (const std::string& text : request->keys) parsed.bytes += text.size();
      for (const std::string& text : request->values) parsed.bytes += text.size();
      (void)contents.handle(from, *request, sink);
    }
  }
  parsed.error = parser.error();
  return parsed;
}

// A conversation with few different keys, so that the requests of the clients meet.
std::string conversation(std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return random() % limit; };
  const auto key = [&] { return std::string(1, static_cast<char>('a' + below(4))); };
  const auto value = [&] {
    std::string text = std::to_string(below(100));
    if (below(2) == 0) text.assign(below(60), static_cast<char>(random()));
    return text;
  };
  std::string bytes = wire::hello();
  for (std::size_t i = below(12); i > 0; --i) {
    const auto opcode = static_cast<Opcode>(below(20));
    bytes += wire::opcode(opcode);
    switch (opcode) {
      case Opcode::kValidate:
      case Opcode::kNumKeys:
        break;
      case Opcode::kPing:
        bytes += wire::integer(static_cast<std::uint32_t>(random()));
        break;
      case Opcode::kCheck:
      case Opcode::kWait:
      case Opcode::kMultiGet:
        bytes += wire::u64(3);
        for (int k = 0; k < 3; ++k) bytes += wire::text(key());
        break;
      case Opcode::kMultiSet:
        bytes += wire::u64(1);
        bytes += wire::text(key());
        bytes += wire::text(value());
        break;
      case Opcode::kCompareSet:
        bytes += wire::text(key());
        bytes += wire::text(value());
        bytes += wire::text(value());
        break;
      case Opcode::kAdd:
      case Opcode::kBarrier:
        bytes += wire::text(key());
        bytes += wire::integer(static_cast<std::int64_t>(below(4)));
        break;
      case Opcode::kSet:
      case Opcode::kAppend:
      case Opcode::kQueuePush:
        bytes += wire::text(key());
        bytes += wire::text(value());
        break;
      default:
        bytes += wire::text(key());
        break;
    }
  }
  return bytes;
}

}  // namespace

// An input: how the bytes are cut, then per client a length and its bytes; the last client has all the rest.
std::vector<std::string> fuzz::seeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> all;
  for (int i = 0; i < 200; ++i) {
    std::string bytes(1, static_cast<char>(random() % 30));
    for (std::uint8_t client = 0; client < kClients; ++client) {
      std::string said = conversation(random);
      if (client + 1 < kClients) {
        said.resize(std::min<std::size_t>(said.size(), 255));
        bytes.push_back(static_cast<char>(said.size()));
      }
      bytes += said;
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  KeyValueStore whole_store;
  KeyValueStore cut_store;
  CountingSink whole_sink;
  CountingSink cut_sink;
  Outcome outcome = Outcome::kAccepted;
  for (std::uint8_t client = 0; client < kClients; ++client) {
    const std::uint8_t length = client + 1 < kClients ? input.byte() : std::uint8_t{0};
    const std::string_view said = client + 1 < kClients ? input.piece(length) : input.rest();
    const Parsed whole = parse(said, std::max<std::size_t>(said.size(), 1), whole_store, client, whole_sink);
    const Parsed cut = parse(said, piece, cut_store, client, cut_sink);
    require(whole.requests == cut.requests && whole.error == cut.error, "bytes mean the same however they are cut");
    require(whole.bytes <= said.size(), "nothing is made of bytes that were not sent");
    if (!whole.error.empty()) outcome = Outcome::kRefused;
    if (piece % 4 == client) {
      whole_store.forget(client);
      cut_store.forget(client);
    }
  }
  require(whole_sink.bytes == cut_sink.bytes, "the replies are the same however the requests are cut");
  return outcome;
}
