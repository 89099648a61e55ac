#include "launcher/nodes/control/control_messages.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <utility>

#include "launcher/nodes/control/json_reader.h"
#include "launcher/nodes/control/notice_format.h"
#include "launcher/os/system/json_text.h"
#include "launcher/os/system/utf8.h"

namespace launcher::control {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr int kMaxRound = 1 << 20;
constexpr std::size_t kMaxName = 1024;
constexpr std::int64_t kMaxTime = std::int64_t{1} << 60;
constexpr int kMaxTimeout = 3'600'000;

std::uint64_t read_position(JsonReader& r) {
  return static_cast<std::uint64_t>(r.number("received", 0, std::numeric_limits<std::int64_t>::max()));
}

// For each kind its name, and how it is written and read.
template <typename Kind>
struct Format;

template <>
struct Format<Hello> {
  static constexpr std::string_view kName = "hello";
  static json write(const Hello& m) {
    json object = {{"protocol", m.protocol},
                   {"version", m.version},
                   {"host", shortened(m.host, kMaxName)},
                   {"pid", m.pid},
                   {"launcher", m.launcher},
                   {"nnodes", m.nnodes},
                   {"min_nodes", m.min_nodes},
                   {"node_rank", m.node_rank},
                   {"run_id", shortened(m.run_id, kMaxName)},
                   {"backend", m.backend},
                   {"max_restarts", m.max_restarts},
                   {"local_world_size", m.local_world_size},
                   {"role", shortened(m.role, kMaxName)}};
    if (m.start_failure) object["trouble"] = control::write(*m.start_failure);
    return object;
  }
  static Hello read(JsonReader& r) {
    constexpr int kMax = std::numeric_limits<int>::max();
    Hello m{.protocol = r.integer("protocol", 0, kMax),
            .version = r.text("version", kMaxName),
            .host = r.text("host", kMaxName),
            .pid = r.integer("pid", 0, kMax),
            .launcher = r.text("launcher", kMaxName),
            .nnodes = r.integer("nnodes", 1, kMaxRanks),
            .min_nodes = r.integer("min_nodes", 0, kMaxRanks),
            .node_rank = r.integer("node_rank", kAnyNode, kMaxRanks),
            .run_id = r.text("run_id", kMaxName),
            .backend = r.text("backend", kMaxName),
            .max_restarts = r.integer("max_restarts", 0, kMax),
            .local_world_size = r.integer("local_world_size", 1, kMaxRanks),
            .role = r.text("role", kMaxName)};
    if (r.has("trouble")) m.start_failure = read_reason(r, "trouble");
    return m;
  }
};

template <>
struct Format<Challenge> {
  static constexpr std::string_view kName = "challenge";
  static json write(const Challenge& m) {
    return json::object({{"text", shortened(m.text, kMaxName)}, {"protocol", m.protocol}});
  }
  static Challenge read(JsonReader& r) {
    Challenge m{.text = r.text("text", kMaxName), .protocol = 0};
    if (r.has("protocol")) m.protocol = r.integer("protocol", 0, std::numeric_limits<int>::max());
    return m;
  }
};
template <>
struct Format<Waiting> {
  static constexpr std::string_view kName = "waiting";
  static json write(const Waiting& m) {
    json object = {{"text", shortened(m.text, kMaxText)}};
    if (m.has_begun) object["begun"] = true;
    return object;
  }
  static Waiting read(JsonReader& r) { return {r.text("text", kMaxText), r.has("begun") && r.flag("begun")}; }
};
template <>
struct Format<Answer> {
  static constexpr std::string_view kName = "answer";
  static json write(const Answer& m) {
    return json::object({{"challenge", m.challenge},
                         {"repeated", m.repeated},
                         {"proof", m.proof},
                         {"session", m.session},
                         {"received", m.received},
                         {"new", m.is_new},
                         {"attempt", m.attempt}});
  }
  static Answer read(JsonReader& r) {
    return {.challenge = r.text("challenge", kMaxName),
            .repeated = r.text("repeated", kMaxName),
            .proof = r.text("proof", kMaxName),
            .session = r.text("session", kMaxName),
            .received = read_position(r),
            .is_new = r.flag("new"),
            .attempt = r.integer("attempt", 0, std::numeric_limits<int>::max())};
  }
};
template <>
struct Format<Welcome> {
  static constexpr std::string_view kName = "welcome";
  static json write(const Welcome& m) {
    return json::object({{"repeated", m.repeated},
                         {"proof", m.proof},
                         {"received", m.received},
                         {"reconnect_after", m.reconnect_after.count()}});
  }
  static Welcome read(JsonReader& r) {
    return {.repeated = r.text("repeated", kMaxName),
            .proof = r.text("proof", kMaxName),
            .received = read_position(r),
            .reconnect_after = milliseconds(r.integer("reconnect_after", 1, kMaxTimeout))};
  }
};
template <>
struct Format<Refusal> {
  static constexpr std::string_view kName = "refusal";
  static json write(const Refusal& m) { return json::object({{"reason", control::write(m.reason)}}); }
  static Refusal read(JsonReader& r) { return {read_reason(r, "reason", 0)}; }
};
template <>
struct Format<Start> {
  static constexpr std::string_view kName = "start";
  static json write(const Start& m) {
    const NodeRanks& ranks = m.place.ranks;
    return json::object({{"round", m.round},
                         {"node", m.place.group_rank},
                         {"nodes", m.place.group_world_size},
                         {"first", ranks.first_rank},
                         {"size", ranks.world_size},
                         {"first_of_role", ranks.first_role_rank},
                         {"size_of_role", ranks.role_world_size},
                         {"port", m.store_port},
                         {"coordinator", m.coordinator},
                         {"foreign", m.has_foreign_nodes}});
  }
  static Start read(JsonReader& r) {
    Start m{.round = r.integer("round", 0, kMaxRound),
            .store_port = r.integer("port", 1, 65535),
            .has_foreign_nodes = r.flag("foreign")};
    m.place.group_world_size = r.integer("nodes", 1, kMaxRanks);
    m.place.group_rank = r.integer("node", 0, m.place.group_world_size - 1);
    m.coordinator = r.integer("coordinator", 0, m.place.group_world_size - 1);
    m.place.ranks.world_size = r.integer("size", 1, kMaxRanks);
    m.place.ranks.first_rank = r.integer("first", 0, m.place.ranks.world_size - 1);
    m.place.ranks.role_world_size = r.integer("size_of_role", 1, m.place.ranks.world_size);
    m.place.ranks.first_role_rank = r.integer("first_of_role", 0, m.place.ranks.role_world_size - 1);
    return m;
  }
};
template <>
struct Format<Leaving> {
  static constexpr std::string_view kName = "leaving";
  static json write(const Leaving& m) {
    return json::object({{"reason", control::write(m.reason)}, {"final", m.is_final}});
  }
  static Leaving read(JsonReader& r) { return {read_reason(r, "reason"), r.flag("final")}; }
};
template <>
struct Format<NodeDropped> {
  static constexpr std::string_view kName = "left_behind";
  static json write(const NodeDropped& /*m*/) { return json::object(); }
  static NodeDropped read(JsonReader& /*r*/) { return {}; }
};
template <>
struct Format<FailureQuery> {
  static constexpr std::string_view kName = "inquiry";
  static json write(const FailureQuery& m) {
    json object = json::object({{"round", m.round}});
    if (m.stop_because) object["stop"] = control::write(*m.stop_because);
    return object;
  }
  static FailureQuery read(JsonReader& r) {
    FailureQuery m{.round = r.integer("round", 0, kMaxRound)};
    if (r.has("stop")) m.stop_because = read_notice(r, "stop");
    return m;
  }
};
template <>
struct Format<Report> {
  static constexpr std::string_view kName = "report";
  static json write(const Report& m) {
    json object = json::object({{"round", m.round}, {"ending", m.is_any_ending}});
    if (m.notice) object["notice"] = control::write(*m.notice);
    return object;
  }
  static Report read(JsonReader& r) {
    Report m{.round = r.integer("round", 0, kMaxRound), .is_any_ending = r.flag("ending")};
    if (r.has("notice")) m.notice = read_notice(r, "notice");
    return m;
  }
};

template <typename Kind>
struct NoticeFormat {
  static json write(const Kind& m) { return json::object({{"round", m.round}, {"notice", control::write(m.notice)}}); }
  static Kind read(JsonReader& r) {
    const int round = r.integer("round", 0, kMaxRound);
    return {round, read_notice(r, "notice")};
  }
};
template <>
struct Format<Failed> : NoticeFormat<Failed> {
  static constexpr std::string_view kName = "failed";
};
template <>
struct Format<CoordinatorSilent> : NoticeFormat<CoordinatorSilent> {
  static constexpr std::string_view kName = "given_up";
};
template <>
struct Format<Verdict> : NoticeFormat<Verdict> {
  static constexpr std::string_view kName = "verdict";
};

template <typename Kind>
struct StatusFormat {
  static json write(const Kind& m) { return json::object({{"round", m.round}, {"status", m.status}}); }
  static Kind read(JsonReader& r) {
    const int round = r.integer("round", 0, kMaxRound);
    return {round, r.integer("status", 0, 255)};
  }
};
template <>
struct Format<Stopped> : StatusFormat<Stopped> {
  static constexpr std::string_view kName = "stopped";
};
template <>
struct Format<AllStopped> : StatusFormat<AllStopped> {
  static constexpr std::string_view kName = "all_stopped";
};

template <typename Kind>
struct RoundFormat {
  static json write(const Kind& m) { return json::object({{"round", m.round}}); }
  static Kind read(JsonReader& r) { return {r.integer("round", 0, kMaxRound)}; }
};
template <>
struct Format<Ready> : RoundFormat<Ready> {
  static constexpr std::string_view kName = "ready";
};
template <>
struct Format<Acknowledged> : RoundFormat<Acknowledged> {
  static constexpr std::string_view kName = "heard";
};
template <>
struct Format<Ended> : RoundFormat<Ended> {
  static constexpr std::string_view kName = "ended";
};
template <>
struct Format<AllEnded> : RoundFormat<AllEnded> {
  static constexpr std::string_view kName = "all_ended";
};
template <>
struct Format<Word> {
  static constexpr std::string_view kName = "word";
  static json write(const Word& m) {
    return json::object({{"round", m.round},
                         {"from", m.from},
                         {"to", m.to},
                         {"text", shortened(printable(beginning(m.text, kMaxWord)), kMaxWord)}});
  }
  static Word read(JsonReader& r) {
    Word m{.round = r.integer("round", 0, kMaxRound),
           .from = r.integer("from", 0, kMaxRanks),
           .to = r.integer("to", kEveryNode, kMaxRanks)};
    m.text = r.text("text", kMaxWord);
    return m;
  }
};
template <>
struct Format<Ping> {
  static constexpr std::string_view kName = "ping";
  static json write(const Ping& m) { return json::object({{"sent", m.sent}, {"patience", m.timeout.count()}}); }
  static Ping read(JsonReader& r) {
    return {r.number("sent", 0, kMaxTime), milliseconds(r.integer("patience", 1, kMaxTimeout))};
  }
};
template <>
struct Format<Pong> {
  static constexpr std::string_view kName = "pong";
  static json write(const Pong& m) {
    return json::object({{"sent", m.sent}, {"clock", m.clock}, {"patience", m.timeout.count()}, {"steady", m.steady}});
  }
  static Pong read(JsonReader& r) {
    return {r.number("sent", 0, kMaxTime), r.number("clock", 0, kMaxClock),
            milliseconds(r.integer("patience", 1, kMaxTimeout)), r.has("steady") ? r.number("steady", 0, kMaxTime) : 0};
  }
};

template <typename Kind>
std::optional<Message> read_as(JsonReader& reader) {
  Kind message = Format<Kind>::read(reader);
  return reader.is_good() ? std::optional<Message>(std::move(message)) : std::nullopt;
}

template <std::size_t... kKinds>
std::optional<Message> read_named(std::string_view name, JsonReader& reader, std::index_sequence<kKinds...> /*all*/) {
  std::optional<Message> message;
  static_cast<void>(((Format<std::variant_alternative_t<kKinds, Message>>::kName == name &&
                      ((message = read_as<std::variant_alternative_t<kKinds, Message>>(reader)), true)) ||
                     ...));
  return message;
}

}  // namespace

std::string to_text(const Message& message) {
  return std::visit(
      []<typename Kind>(const Kind& content) {
        json object = Format<Kind>::write(content);
        object["is"] = Format<Kind>::kName;
        return json_text(object);
      },
      message);
}

std::optional<Message> parse_message(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto name = object.find("is");
  if (name == object.end() || !name->is_string()) return std::nullopt;
  JsonReader reader(object);
  return read_named(name->get_ref<const std::string&>(), reader,
                    std::make_index_sequence<std::variant_size_v<Message>>());
}

}  // namespace launcher::control
