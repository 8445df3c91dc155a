// A player that opens beside the ranking at a chosen frame.

/** play(frame, seconds) for a video at an address; video: {fps, codec}. */
export function player(root, address, { fps, codec }) {
  const video = root.querySelector("video");
  const said = root.querySelector("p");
  root.hidden = true;
  video.pause();
  video.removeAttribute("src");
  root.querySelector("button").onclick = () => {
    video.pause();
    root.hidden = true;
  };
  video.onerror = () => {
    said.textContent = `This browser cannot play this file (${codec}), but its frames are shown.`;
  };
  return (frame, seconds) => {
    root.hidden = false;
    said.textContent = `from frame ${frame}`;
    if (!video.getAttribute("src")) video.src = address;
    video.currentTime = seconds + 0.5 / fps; // the middle of the frame: its beginning may show the one before
    video.play().catch(() => {}); // where a browser wants a click first, the controls are there
  };
}
