// What comes over a channel that ssh gives, and the file of --hostfile.
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/host_list.h"
#include "launcher/remote/ssh_command.h"
#include "launcher/remote/wire.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace launcher::remote;

template <typename Message>
bool survives(const std::string& bytes) {
  const auto message = decode<Message>(bytes);
  if (!message) return false;
  fuzz::require(decode<Message>(encode(*message)) == *message,
                "a message that was accepted is one that a ddprun sends");
  return true;
}

}  // namespace

std::vector<std::string> fuzz::seeds() {
  return {to_bytes({Kind::kTask, 1, encode(Task{1, {"ssh", 22, "key", 1, 2, "d", "p"}, {{2, "b", false}}})}),
          to_bytes({Kind::kPlan, kEveryHost,
                    encode(Plan{.arguments = {"--grace=1"}, .program = {"x"}, .environment = {"A=1"}})}),
          to_bytes({Kind::kHello, 1, encode(Hello{"b", "1 2 3 4", 5, true})}) +
              to_bytes({Kind::kEnded, 1, encode(Ending{1, "x"})}),
          to_bytes({Kind::kNode, 1, encode(NodeArguments{{"--nnodes=2"}, true})}) +
              to_bytes({Kind::kClock, 1, encode(Clock{1, 2})}),
          greeting("0.1.0"),
          "a slots=4 max_slots=8\n[::1]:2 # x\nme@b\n"};
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  FrameReader reader;
  reader.feed(bytes);
  bool is_accepted = false;
  while (const auto frame = reader.next()) {
    is_accepted = survives<Task>(frame->bytes) || is_accepted;
    is_accepted = survives<Hello>(frame->bytes) || is_accepted;
    is_accepted = survives<Plan>(frame->bytes) || is_accepted;
    is_accepted = survives<NodeArguments>(frame->bytes) || is_accepted;
    is_accepted = survives<Ending>(frame->bytes) || is_accepted;
    is_accepted = survives<Clock>(frame->bytes) || is_accepted;
  }
  require(find_greeting(bytes, "0.1.0").end <= bytes.size(), "a greeting lies in the bytes");
  try {
    for (const launcher::HostSlots& host : launcher::parse_host_file(bytes, "f")) {
      require(!host.host.empty() && !host.host.starts_with('-'), "no host is an option of ssh");
    }
    is_accepted = true;
  } catch (const launcher::LaunchError&) {
  }
  return is_accepted ? Outcome::kAccepted : Outcome::kRefused;
}
