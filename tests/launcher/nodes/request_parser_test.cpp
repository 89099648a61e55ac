#include "launcher/nodes/store/request_parser.h"

#include <string>
#include <vector>

#include "tests/launcher/wire.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher::store {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using ddp::test::ElementsAre;

// One request of every kind.
std::string every_request() {
  using namespace wire;
  return hello() + opcode(Opcode::kPing) + integer(std::uint32_t{0xfffffff0}) + set("k", "v") +
         with_key(Opcode::kCompareSet, "k") + text("old") + text("new") + with_key(Opcode::kGet, "k") + add("k", -5) +
         with_keys(Opcode::kCheck, {"a", "b"}) + with_keys(Opcode::kWait, {}) + opcode(Opcode::kNumKeys) +
         with_key(Opcode::kDelete, "") + with_key(Opcode::kAppend, "k") + text(std::string("\0\xff", 2)) +
         with_keys(Opcode::kMultiGet, {"a"}) + opcode(Opcode::kMultiSet) + u64(2) + text("a") + text("1") + text("b") +
         text("2") + opcode(Opcode::kCancelWait) + with_key(Opcode::kQueuePush, "q") + text("e") +
         with_key(Opcode::kQueuePop, "q") + with_key(Opcode::kQueueLen, "q") + opcode(Opcode::kListKeys) +
         with_key(Opcode::kBarrier, "b") + integer(std::int64_t{4});
}

std::vector<Request> parse_all(RequestParser& parser, const std::string& bytes, std::size_t chunk) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < bytes.size(); i += chunk) {
    parser.feed(std::string_view(bytes).substr(i, chunk));
    while (auto request = parser.next()) requests.push_back(std::move(*request));
  }
  return requests;
}

TEST_CASE("RequestParser: reads every request, however the bytes are cut") {
  const auto chunk = GENERATE(values<std::size_t>({1, 2, 7, 64, 1 << 20}));
  CAPTURE(chunk);
  RequestParser parser;
  const auto requests = parse_all(parser, every_request(), chunk);
  CHECK(parser.error() == "");
  REQUIRE(requests.size() == 19U);
  CHECK(requests[1].number == 0xfffffff0);
  CHECK_THAT(requests[2].keys, ElementsAre("k"));
  CHECK_THAT(requests[2].values, ElementsAre("v"));
  CHECK_THAT(requests[3].values, ElementsAre("old", "new"));
  CHECK(requests[5].number == -5);
  CHECK_THAT(requests[6].keys, ElementsAre("a", "b"));
  CHECK_THAT(requests[7].keys, IsEmpty());
  CHECK_THAT(requests[9].keys, ElementsAre(""));
  CHECK_THAT(requests[10].values, ElementsAre(std::string("\0\xff", 2)));
  CHECK_THAT(requests[12].keys, ElementsAre("a", "b"));
  CHECK_THAT(requests[12].values, ElementsAre("1", "2"));
  CHECK(requests[18].number == 4);
  const Opcode order[] = {Opcode::kValidate, Opcode::kPing,       Opcode::kSet,       Opcode::kCompareSet,
                          Opcode::kGet,      Opcode::kAdd,        Opcode::kCheck,     Opcode::kWait,
                          Opcode::kNumKeys,  Opcode::kDelete,     Opcode::kAppend,    Opcode::kMultiGet,
                          Opcode::kMultiSet, Opcode::kCancelWait, Opcode::kQueuePush, Opcode::kQueuePop,
                          Opcode::kQueueLen, Opcode::kListKeys,   Opcode::kBarrier};
  for (std::size_t i = 0; i < requests.size(); ++i) CHECK(requests[i].opcode == order[i]);
}

TEST_CASE("RequestParser: nothing is read before the validation") {
  for (const std::string& first :
       {wire::set("k", "v"), std::string("GET / HTTP/1.1\r\n"), wire::opcode(Opcode::kNumKeys),
        wire::opcode(Opcode::kValidate) + wire::integer(std::uint32_t{1})}) {
    RequestParser parser;
    parser.feed(first);
    CHECK_FALSE(parser.next());
    CHECK_THAT(parser.error(), ContainsSubstring("are not those of a torch store client"));
  }
}

TEST_CASE("RequestParser: unknown operations are refused") {
  for (const int code : {19, 64, 255}) {
    RequestParser parser;
    parser.feed(wire::hello() + std::string(1, static_cast<char>(code)));
    CHECK(parser.next());
    CHECK_FALSE(parser.next());
    CHECK_THAT(parser.error(), ContainsSubstring("unknown operation " + std::to_string(code)));
  }
}

TEST_CASE("RequestParser: announced lengths above the limits are refused at once") {
  using namespace wire;
  const ParserLimits limits{.max_key_bytes = 10, .max_value_bytes = 20, .max_request_bytes = 50, .max_items = 3};
  for (const std::string& bytes :
       {opcode(Opcode::kGet) + u64(11), opcode(Opcode::kGet) + u64(~0ULL), opcode(Opcode::kGet) + u64(1ULL << 63),
        with_key(Opcode::kSet, "k") + u64(21), opcode(Opcode::kWait) + u64(4), opcode(Opcode::kMultiSet) + u64(~0ULL),
        opcode(Opcode::kMultiSet) + u64(3) + text("a") + text(std::string(20, 'x')) + text("b") +
            text(std::string(20, 'x')) + text("c") + u64(20)}) {
    RequestParser parser(limits);
    parser.feed(hello() + bytes);
    CHECK(parser.next());
    CHECK_FALSE(parser.next());
    CHECK(parser.error() != "");
    parser.feed(hello());
    INFO("a refused connection stays refused");
    CHECK_FALSE(parser.next());
  }
}

TEST_CASE("RequestParser: at the limits requests are read") {
  using namespace wire;
  RequestParser parser({.max_key_bytes = 10, .max_value_bytes = 20, .max_request_bytes = 30, .max_items = 3});
  parser.feed(hello() + set(std::string(10, 'k'), std::string(20, 'v')) + with_keys(Opcode::kWait, {"a", "b", "c"}));
  CHECK(parser.next());
  CHECK(parser.next());
  CHECK(parser.next());
  CHECK(parser.error() == "");
}

// A list of the greatest count, sent byte by byte, must not be read again from its beginning for every byte.
TEST_CASE("RequestParser: keeps little more than what was received") {
  RequestParser parser;
  parser.feed(wire::hello());
  REQUIRE(parser.next());
  const std::string value(std::size_t{8} << 20, 'x');
  const std::string bytes =
      wire::integer(static_cast<std::uint8_t>(Opcode::kSet)) + wire::text("key") + wire::text(value);
  constexpr std::size_t kPart = 64 << 10;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPart) {
    CHECK(parser.held_bytes() <= 2 * begin + 4 * kPart);
    parser.feed(std::string_view(bytes).substr(begin, kPart));
    const auto request = parser.next();
    REQUIRE(request.has_value() == (begin + kPart >= bytes.size()));
    if (!request) {
      CHECK(parser.held_bytes() >= begin);
      continue;
    }
    CHECK(request->values.at(0) == value);
    CHECK(request->values.at(0).capacity() <= value.size() + 16);
  }
  CHECK(parser.held_bytes() <= 4 * kPart);
}

TEST_CASE("RequestParser: slow senders cost no more than fast ones") {
  RequestParser parser;
  parser.feed(wire::hello());
  REQUIRE(parser.next());
  const std::string bytes = wire::with_keys(Opcode::kWait, std::vector<std::string>(100'000, "key"));
  std::size_t requests = 0;
  for (const char byte : bytes) {
    parser.feed(std::string_view(&byte, 1));
    if (parser.next()) ++requests;
  }
  CHECK(requests == 1U);
}

}  // namespace
}  // namespace launcher::store
