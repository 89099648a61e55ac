// The store's end of a proxy's link: frames in any order, with requests of torch's protocol in them.
#include <random>

#include "launcher/nodes/store/proxy_links.h"
#include "tests/fuzz/fuzz.h"
#include "tests/launcher/wire.h"

namespace {

using namespace launcher;
using namespace launcher::store;

// `bytes` in pieces, by a store_channel that sometimes has no room. True when the link was kept.
bool serve(std::string_view bytes, std::size_t piece) {
  auto budget = std::make_shared<MemoryBudget>(std::size_t{1} << 20);
  bool is_kept = false;
  {
    KeyValueStore store(budget);
    ReplyRouter router;
    ProxyLinks* self = nullptr;
    ProxyLinks links(store, router, budget,
                     {.on_answered =
                          [&] {
                            for (auto woken = router.take_ready_connections(); !woken.empty();
                                 woken = router.take_ready_connections()) {
                              for (const ConnectionId id : woken) self->on_replies(id);
                            }
                          },
                      .on_refused = [](const std::string&, const std::string&) {}});
    self = &links;
    auto store_channel = std::make_shared<StoreChannel>();
    std::size_t asked = 0;
    store_channel->send = [](std::string_view) {};
    store_channel->has_room = [&] { return ++asked % 3 != 0; };
    links.add(1, "a node", store_channel);
    is_kept = true;
    while (!bytes.empty() && is_kept) {
      is_kept = links.on_received(1, bytes.substr(0, piece));
      bytes.remove_prefix(std::min(piece, bytes.size()));
      links.on_space_available(1);
    }
    fuzz::require(is_kept == (links.links() == 1), "a link that says nonsense is dropped");
    fuzz::require(is_kept || links.clients() == 0, "a link's clients go with it");
  }
  fuzz::require(budget->used() == 0, "what is charged is given back");
  return is_kept;
}

std::string conversation(std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return random() % limit; };
  std::string bytes;
  for (std::uint32_t channel = 0; channel < 3; ++channel) append_frame(bytes, FrameKind::kOpen, channel, {});
  for (std::uint32_t channel = 0; channel < 3; ++channel) append_frame(bytes, FrameKind::kData, channel, wire::hello());
  for (std::size_t i = below(12); i > 0; --i) {
    const auto channel = static_cast<Channel>(below(4));
    const std::string key(1, static_cast<char>('a' + below(3)));
    switch (below(6)) {
      case 0:
        append_frame(bytes, FrameKind::kData, channel, wire::set(key, std::string(below(300), 'v')));
        break;
      case 1:
        append_frame(bytes, FrameKind::kData, channel, wire::with_key(Opcode::kGet, key));
        break;
      case 2:
        append_frame(bytes, FrameKind::kData, channel, wire::with_keys(Opcode::kWait, {key}));
        break;
      case 3:
        append_frame(bytes, FrameKind::kData, channel, std::string(below(9), static_cast<char>(random())));
        break;
      case 4:
        append_frame(bytes, FrameKind::kTaken, channel, {}, static_cast<std::uint32_t>(below(30)));
        break;
      default:
        append_frame(bytes, FrameKind::kClose, channel, {});
        break;
    }
  }
  return bytes;
}

}  // namespace

// An input: how the bytes are cut, and the bytes.
std::vector<std::string> fuzz::seeds() {
  std::mt19937_64 random(1);
  std::vector<std::string> all;
  for (int i = 0; i < 200; ++i) all.push_back(chosen(static_cast<char>(random() % 60), conversation(random)));
  return all;
}

fuzz::Outcome fuzz::run(std::string_view bytes) {
  Input input(bytes);
  const std::size_t piece = 1 + input.byte();
  const std::string_view said = input.rest().substr(0, 4096);
  const bool is_kept = serve(said, 4096);
  (void)serve(said, piece);
  return is_kept ? Outcome::kAccepted : Outcome::kRefused;
}
