// A player that opens beside the ranking at a chosen frame, and closes where the browser cannot play the file.

/** play(frame, seconds) for a video at an address; video: {fps, codec}. */
export function player(root, address, { fps, codec }) {
  const video = root.querySelector("video");
  const said = root.querySelector("p");
  const empty = () => {
    video.removeAttribute("src");
    video.load(); // lets go of the file
  };
  const close = () => {
    video.pause();
    root.hidden = true;
  };
  close();
  empty();
  root.querySelector("button").onclick = close;
  root.onkeydown = (event) => event.key === "Escape" && close();
  video.onerror = () => {
    video.hidden = true; // what is left is the note
    empty();
    said.textContent = `This browser cannot play this file (${codec}), but its frames are shown.`;
  };
  return (frame, seconds) => {
    root.hidden = video.hidden = false;
    said.textContent = `from frame ${frame}`;
    if (!video.getAttribute("src")) video.src = address;
    video.currentTime = seconds + 0.5 / fps; // the middle of the frame: its beginning may show the one before
    video.play().catch(() => {}); // where a browser wants a click first, the controls are there
  };
}
