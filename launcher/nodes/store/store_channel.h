// The connection between a node's store proxy and the store: an ordered stream of bytes in both directions, carried by
// a control link. The link and its user share this object, and either may be destroyed first.
#pragma once

#include <functional>
#include <string_view>

namespace launcher::store {

struct StoreChannel {
  // Set by the owner of the connection. All are empty once the connection is closed.
  std::function<void(std::string_view bytes)> send{};  // sends at the next flush() at the latest, or when there is room
  std::function<void()> flush{};
  std::function<bool()> has_room{};  // whether more should be sent; on_space_available follows a "no"

  // Set by the user of the connection. All are empty once there is no user any more.
  std::function<void(std::string_view bytes)> on_bytes{};
  std::function<void()> on_space_available{};
  std::function<void()> on_closed{};
};

}  // namespace launcher::store
