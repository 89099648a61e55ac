#include "launcher/remote/wire.h"

#include <concepts>
#include <utility>

namespace launcher::remote {
namespace {

constexpr std::size_t kHostBytes = 4;

// Writer and reader share one list of members: `visit(archive, message)` names them once.
class Writer {
 public:
  void operator()(std::uint32_t value) { append_integer(bytes, value); }
  void operator()(std::uint64_t value) { append_integer(bytes, value); }
  void operator()(bool value) { bytes.push_back(value ? 1 : 0); }
  void operator()(const std::string& value) {
    append_integer(bytes, static_cast<std::uint32_t>(value.size()));
    bytes += value;
  }
  template <typename Element>
  void operator()(const std::vector<Element>& list) {
    append_integer(bytes, static_cast<std::uint32_t>(list.size()));
    for (const Element& element : list) (*this)(element);
  }
  template <typename Message>
  void operator()(const Message& message) {
    visit(*this, message);
  }

  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <std::unsigned_integral Number>
  void operator()(Number& value) {
    if (!has(sizeof value)) return;
    value = read_integer<Number>(left_);
    left_.remove_prefix(sizeof value);
  }
  void operator()(bool& value) {
    if (!has(1)) return;
    value = left_.front() != 0;
    left_.remove_prefix(1);
  }
  void operator()(std::string& value) {
    std::uint32_t size = 0;
    (*this)(size);
    if (!has(size)) return;
    value = left_.substr(0, size);
    left_.remove_prefix(size);
  }
  template <typename Element>
  void operator()(std::vector<Element>& list) {
    std::uint32_t count = 0;
    (*this)(count);
    // Each element takes some bytes, so a wrong length allocates nothing.
    for (; count > 0 && is_good_; --count) (*this)(list.emplace_back());
  }
  template <typename Message>
  void operator()(Message& message) {
    visit(*this, message);
  }

  bool has_read_all() const { return is_good_ && left_.empty(); }

 private:
  bool has(std::size_t bytes) {
    is_good_ = is_good_ && left_.size() >= bytes;
    return is_good_;
  }

  std::string_view left_;
  bool is_good_ = true;
};

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, SshSettings>
void visit(Archive& archive, Message& ssh) {
  archive(ssh.command);
  archive(ssh.port);
  archive(ssh.identity);
  archive(ssh.timeout_ms);
  archive(ssh.fanout);
  archive(ssh.remote_ddprun);
  archive(ssh.own_path);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, NamedHost>
void visit(Archive& archive, Message& host) {
  archive(host.number);
  archive(host.name);
  archive(host.is_local);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, Task>
void visit(Archive& archive, Message& task) {
  archive(task.number);
  archive(task.ssh);
  archive(task.hosts);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, Hello>
void visit(Archive& archive, Message& hello) {
  archive(hello.host_name);
  archive(hello.connection);
  archive(hello.port);
  archive(hello.has_secrets);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, Plan>
void visit(Archive& archive, Message& plan) {
  archive(plan.arguments);
  archive(plan.program);
  archive(plan.environment);
  archive(plan.folder);
  archive(plan.needs_folder);
  archive(plan.secret);
  archive(plan.window);
  archive(plan.grace_ms);
  archive(plan.keeps_lines);
  archive(plan.is_check);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, NodeArguments>
void visit(Archive& archive, Message& arguments) {
  archive(arguments.arguments);
  archive(arguments.reads_input);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, Ending>
void visit(Archive& archive, Message& ending) {
  archive(ending.status);
  archive(ending.text);
}

template <typename Archive, typename Message>
requires std::same_as<std::remove_const_t<Message>, Clock>
void visit(Archive& archive, Message& clock) {
  archive(clock.asked_ns);
  archive(clock.own_ns);
}

template <typename Message>
std::string written(const Message& message) {
  Writer writer;
  writer(message);
  return std::move(writer.bytes);
}

}  // namespace

std::string to_bytes(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kFrameHeadBytes + kHostBytes + frame.bytes.size());
  begin_frame(bytes, static_cast<std::uint8_t>(frame.kind));
  append_integer(bytes, frame.host);
  bytes += frame.bytes;
  end_frame(bytes, 0);
  return bytes;
}

std::optional<ContentSizes> FrameFormat::sizes_of(std::uint8_t /*kind*/) {
  return ContentSizes{kHostBytes, kMaxContentBytes};
}

Frame FrameFormat::frame(std::uint8_t kind, std::string_view content) {
  return {static_cast<Kind>(kind), read_integer<std::uint32_t>(content), std::string(content.substr(kHostBytes))};
}

std::string encode(const Task& task) {
  return written(task);
}
std::string encode(const Hello& hello) {
  return written(hello);
}
std::string encode(const Plan& plan) {
  return written(plan);
}
std::string encode(const NodeArguments& arguments) {
  return written(arguments);
}
std::string encode(const Ending& ending) {
  return written(ending);
}
std::string encode(const Clock& clock) {
  return written(clock);
}
std::string encode_amount(std::uint32_t amount) {
  return written(amount);
}

template <typename Message>
std::optional<Message> decode(std::string_view bytes) {
  Message message;
  Reader reader(bytes);
  reader(message);
  return reader.has_read_all() ? std::optional(std::move(message)) : std::nullopt;
}
template std::optional<Task> decode(std::string_view);
template std::optional<Hello> decode(std::string_view);
template std::optional<Plan> decode(std::string_view);
template std::optional<NodeArguments> decode(std::string_view);
template std::optional<Ending> decode(std::string_view);
template std::optional<Clock> decode(std::string_view);

std::optional<std::uint32_t> take_amount(std::string_view& bytes) {
  if (bytes.size() < sizeof(std::uint32_t)) return std::nullopt;
  const auto amount = read_integer<std::uint32_t>(bytes);
  bytes.remove_prefix(sizeof amount);
  return amount;
}

}  // namespace launcher::remote
