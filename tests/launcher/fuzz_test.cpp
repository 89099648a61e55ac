// Feeds random and mutated input to everything that reads what others wrote. Deterministic: a failure names its seed.
// DDPRUN_FUZZ_ROUNDS asks for more than the short default.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "launcher/command_line.h"
#include "launcher/descendants.h"
#include "launcher/error_file.h"
#include "launcher/store/key_value_store.h"
#include "launcher/store/request_parser.h"
#include "launcher/usable_cpus.h"
#include "tests/launcher/wire.h"

namespace launcher {
namespace {

using Random = std::mt19937_64;

int rounds(int default_rounds) {
  const char* text = std::getenv("DDPRUN_FUZZ_ROUNDS");
  return text == nullptr ? default_rounds : std::atoi(text);
}

std::size_t below(Random& random, std::size_t limit) {
  return limit == 0 ? 0 : random() % limit;
}

std::string random_bytes(Random& random, std::size_t limit) {
  std::string bytes(below(random, limit), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Flips, removes, repeats and inserts.
std::string mutate(Random& random, std::string bytes) {
  for (std::size_t i = below(random, 6); i > 0; --i) {
    const std::size_t at = below(random, bytes.size() + 1);
    switch (below(random, 5)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, below(random, 9));
        break;
      case 2:
        bytes.insert(at, random_bytes(random, 9));
        break;
      case 3:
        bytes.insert(at, bytes.substr(below(random, bytes.size() + 1), below(random, 40)));
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(1U << below(random, 8));
        break;
    }
  }
  return bytes;
}

// A client's conversation with small numbers of keys, so that its requests meet.
std::string conversation(Random& random) {
  namespace wire = store::wire;
  using store::Opcode;
  std::string bytes = wire::hello();
  const auto key = [&] { return std::string(1, static_cast<char>('a' + below(random, 4))); };
  const auto value = [&] { return below(random, 2) == 0 ? std::to_string(random() % 100) : random_bytes(random, 200); };
  for (std::size_t i = below(random, 30); i > 0; --i) {
    const auto opcode = static_cast<Opcode>(below(random, 20));
    bytes += wire::opcode(opcode);
    switch (opcode) {
      case Opcode::kValidate:
        bytes += wire::integer(store::kValidationNumber);
        break;
      case Opcode::kPing:
        bytes += wire::integer(static_cast<std::uint32_t>(random()));
        break;
      case Opcode::kSet:
      case Opcode::kAppend:
      case Opcode::kQueuePush:
        bytes += wire::text(key()) + wire::text(value());
        break;
      case Opcode::kCompareSet:
        bytes += wire::text(key()) + wire::text(value()) + wire::text(value());
        break;
      case Opcode::kAdd:
      case Opcode::kBarrier:
        bytes += wire::text(key()) + wire::integer(static_cast<std::int64_t>(below(random, 4)));
        break;
      case Opcode::kCheck:
      case Opcode::kWait:
      case Opcode::kMultiGet:
        bytes += wire::u64(3) + wire::text(key()) + wire::text(key()) + wire::text(key());
        break;
      case Opcode::kMultiSet:
        bytes += wire::u64(2) + wire::text(key()) + wire::text(value()) + wire::text(key()) + wire::text(value());
        break;
      default:
        bytes += wire::text(key());
        break;
    }
  }
  return bytes;
}

class CountingSink : public store::ReplySink {
 public:
  void send_u8(store::ConnectionId to, std::uint8_t) override { bytes[to] += 1; }
  void send_u32(store::ConnectionId to, std::uint32_t) override { bytes[to] += 4; }
  void send_i64(store::ConnectionId to, std::int64_t) override { bytes[to] += 8; }
  void send_bytes(store::ConnectionId to, const store::Value& value) override { bytes[to] += 8 + value->size(); }
  std::map<store::ConnectionId, std::size_t> bytes;
};

struct Parsed {
  std::size_t requests = 0;
  std::size_t bytes = 0;  // in keys and values
  std::string error;
};

Parsed parse(const std::string& input, Random* cuts, store::KeyValueStore& contents, store::ConnectionId from,
             CountingSink& sink) {
  store::RequestParser parser;
  Parsed parsed;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t size = cuts == nullptr ? input.size() : 1 + below(*cuts, 20);
    parser.feed(std::string_view(input).substr(at, size));
    at += size;
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

TEST(Fuzz, StoreRequests) {
  for (int seed = 0; seed < rounds(30'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    store::KeyValueStore whole_store;
    store::KeyValueStore cut_store;
    CountingSink whole_sink;
    CountingSink cut_sink;
    for (store::ConnectionId connection = 0; connection < 3; ++connection) {
      std::string input = conversation(random);
      if (below(random, 3) != 0) input = mutate(random, std::move(input));
      const Parsed whole = parse(input, nullptr, whole_store, connection, whole_sink);
      const Parsed cut = parse(input, &random, cut_store, connection, cut_sink);
      // However the bytes arrive, they mean the same; and nothing is made of bytes that were not sent.
      ASSERT_EQ(whole.requests, cut.requests);
      ASSERT_EQ(whole.error, cut.error);
      ASSERT_LE(whole.bytes, input.size());
      if (below(random, 4) == 0) {
        whole_store.forget(connection);
        cut_store.forget(connection);
      }
    }
    ASSERT_EQ(whole_sink.bytes, cut_sink.bytes);
  }
}

TEST(Fuzz, CommandLines) {
  const std::vector<std::string> words = {"--nproc_per_node",
                                          "-n",
                                          "-np",
                                          "--",
                                          "prog",
                                          "--help",
                                          "-m",
                                          "--master_port",
                                          "--grace=",
                                          "--grace",
                                          "2",
                                          "-1",
                                          "1e999",
                                          "=",
                                          "--standalone",
                                          "--no_",
                                          "--nnodes",
                                          "--role",
                                          "-n=",
                                          "--nproc-per-node=cpu",
                                          "",
                                          "-",
                                          "---",
                                          "--=x",
                                          "--role=%",
                                          "\"a",
                                          "[x",
                                          "{}"};
  for (int seed = 0; seed < rounds(3'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    std::vector<std::string> arguments;
    for (std::size_t i = below(random, 7); i > 0; --i) {
      std::string word = words[below(random, words.size())];
      arguments.push_back(below(random, 3) == 0 ? mutate(random, word) : word);
    }
    const auto result = parse_command_line(arguments);
    if (const auto* options = std::get_if<Options>(&result)) {
      // The program is the unchanged end of the command line.
      ASSERT_FALSE(options->program.empty());
      ASSERT_LE(options->program.size(), arguments.size());
      ASSERT_TRUE(std::equal(options->program.rbegin(), options->program.rend(), arguments.rbegin()));
    } else {
      const auto& exit = std::get<ExitRequest>(result);
      ASSERT_TRUE(exit.status == 0 || exit.status == 125);
      ASSERT_FALSE(exit.text.empty());
    }
  }
}

TEST(Fuzz, FilesThatOthersWrite) {
  const std::string json =
      R"({"message": {"message": "text", "extraInfo": {"timestamp": "1700000000"}}, "timestamp": 1.5})";
  const std::string stat = "123 (sh) S 77 1 2 3 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 111 222";
  for (int seed = 0; seed < rounds(30'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    const std::string text = mutate(random, json);
    const auto record = parse_error_record(text);
    if (record) {
      ASSERT_FALSE(record->message.empty());
    }
    (void)parse_process_stat(mutate(random, stat));
    ASSERT_GE(cpus_from_cpu_max(mutate(random, "150000 100000\n")), 0);
  }
}

}  // namespace
}  // namespace launcher
